"""The card of a model: all that an ingress knows of it."""

from dataclasses import dataclass

from deployments.contract.media_rules import MediaKind, MediaRules
from deployments.contract.outputs import GENERATES, AnswerKinds
from deployments.contract.requests import SamplingParams
from deployments.contract.served_adapters import PLAIN_MODEL, AskedAdapters
from deployments.contract.speech_rules import SpeechRules
from deployments.contract.weights_form import WeightsForm


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """All that an ingress must know of a model to turn text into ids and back without its files."""

    name: str
    version: str  # changes with anything that changes ids, text or limits
    created: int  # Unix seconds
    context_length: int  # prompt and output together
    vocab_size: int
    page_size: int
    tokenizer_json: str
    chat_template: str | None
    tool_template: str | None = None  # for conversations with tools, where it has one for these
    special_tokens: tuple[tuple[str, str], ...]  # ("bos_token", "<s>"), ... as templates name them
    eos_token_ids: tuple[int, ...]
    sampling: SamplingParams  # the model's own defaults, from its generation config
    dialect: str = ""  # how it speaks of tools and thoughts; "" for what its template says
    parses_special: bool = False  # whether messages may spell control tokens
    # "refuse" or "describe" what it can't read; None describes what tools return alone.
    unseen_media: str | None = None
    keeps_states: bool = False  # whether it has layers that keep a state in the place of keys
    saves_slots: bool = False  # whether llama-server's slots can be saved and restored
    answers: AnswerKinds = GENERATES
    media: MediaRules | None = None  # None for a model that reads text only
    speech: SpeechRules | None = None  # of a model that transcribes, and does nothing else
    weights: WeightsForm | None = None  # None where its files are of no known form
    adapters: AskedAdapters = PLAIN_MODEL  # of the request, which the ingress adds

    @property
    def answers_as(self) -> str:
        """The name of the model in answers: that of an adapter as the request has it."""
        named = self.adapters.named
        return self.name if named is None else self.adapters.asked or self.name


def media_kinds(card: ModelCard) -> tuple[MediaKind, ...]:
    """Returns the kinds of media that the model reads beside text."""
    return () if card.media is None else card.media.kinds
