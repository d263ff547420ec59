"""The body of POST /completion. Each of llama-server's fields is honoured or refused by name.

Null is the same as leaving a field out. The defaults are llama-server's.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, model_validator

from deployments.contract.errors import refused
from deployments.ingress.generation.plan import PlanOptions
from deployments.ingress.http.schema import (
    MAX_LOGIT_BIASES,
    Items,
    LongItems,
    ModelName,
    Strict,
    TextsAndIds,
    TokenId,
)
from deployments.ingress.http.validation import parse, refuse_unsupported
from deployments.ingress.llamacpp.field_types import NEUTRAL as COMMON
from deployments.ingress.llamacpp.field_types import (
    TYPICAL,
    Amount,
    AtLeast0,
    AtLeastMinus1,
    Breakers,
    Hints,
    LoraFields,
    Names,
    PingInterval,
    Share,
    Text,
)
from deployments.ingress.llamacpp.sampler_names import DEFAULT_SAMPLERS
from deployments.ingress.llamacpp.sampling import (
    DRY_ALLOWED_LENGTH,
    DRY_BASE,
    DRY_BREAKERS,
    DRY_LAST_N,
    MIROSTAT_ETA,
    MIROSTAT_TAU,
)
from deployments.media.source import Source

MAX_SEQUENCES = 1024
MAX_CHOICES = 128
MAX_TOP_LOGPROBS = 100
MAX_STOPS = 64
MAX_TEXTS = 4096  # of all prompts: each is a call of the tokenizer
MEDIA_MARKER = "<__media__>"

# Known but not supported: only null and the values listed, which change nothing, are accepted.
NEUTRAL: dict[str, tuple[object, ...]] = {
    **COMMON,
    "reasoning_format": ("none",),
    "stream_options": ({}, {"include_usage": False}),
}
# Names of one field.
ALIASES = (
    ("n_predict", "max_tokens", "max_completion_tokens"),
    ("n_probs", "logprobs"),
    ("n_cmpl", "n"),
)

Texts = Annotated[list[Text], Field(max_length=MAX_STOPS)]
Limit = AtLeastMinus1
Choices = Annotated[int, Field(ge=1, le=MAX_CHOICES)]
Alternatives = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)]
BiasText = Annotated[str, Field(max_length=1024)]
BiasPair = Annotated[list[int | float | BiasText | bool], Field(min_length=2, max_length=2)]
BiasMap = Annotated[dict[BiasText, float | bool], Field(max_length=MAX_LOGIT_BIASES)]
BiasPairs = Annotated[Items[BiasPair], Field(max_length=MAX_LOGIT_BIASES)]


class PromptObject(Strict):
    """Each MEDIA_MARKER in the text stands for one of the files, in their order."""

    prompt_string: str
    multimodal_data: Items[Annotated[str, Field(min_length=1)]] | None = None

    def sources(self, path: str = "") -> list[Source]:
        return [
            Source(kind=None, path=f"{path}.multimodal_data[{index}]", data=data)
            for index, data in enumerate(self.multimodal_data or ())
        ]


Prompt = (
    str
    | PromptObject
    | Annotated[LongItems[str | TokenId | TextsAndIds | PromptObject], Field(min_length=1)]
)
OnePrompt = str | PromptObject | LongItems[str | int]


class CompletionFields(Hints, LoraFields):
    """The fields that /completion and /infill share."""

    model: ModelName = None
    stream: bool = False
    n_predict: Limit = -1
    max_tokens: Limit = -1
    max_completion_tokens: Limit = -1
    n_cmpl: Choices = 1
    n: Choices = 1

    temperature: Amount = 0.8
    dynatemp_range: Amount = 0.0
    dynatemp_exponent: Amount = 1.0
    top_k: AtLeastMinus1 = 40
    top_p: Share = 0.95
    min_p: Share = 0.05
    typical_p: Share = Field(default=1.0, validation_alias=TYPICAL)
    top_n_sigma: Annotated[float, Field(ge=-1)] = -1.0
    xtc_probability: Share = 0.0
    xtc_threshold: Share = 0.1
    repeat_last_n: AtLeastMinus1 = 64
    repeat_penalty: Annotated[float, Field(gt=0)] = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: Amount = 0.0
    dry_base: Annotated[float, Field(ge=1)] = DRY_BASE
    dry_allowed_length: AtLeast0 = DRY_ALLOWED_LENGTH
    dry_penalty_last_n: AtLeastMinus1 = DRY_LAST_N
    dry_sequence_breakers: Breakers = Field(default_factory=lambda: list(DRY_BREAKERS))
    mirostat: Literal[0, 1, 2] = 0
    mirostat_tau: Amount = MIROSTAT_TAU
    mirostat_eta: Amount = MIROSTAT_ETA
    samplers: Names = Field(default_factory=lambda: list(DEFAULT_SAMPLERS))
    min_keep: AtLeast0 = 0
    seed: Annotated[int, Field(ge=-1, lt=2**63)] = -1
    logit_bias: BiasMap | BiasPairs = Field(default_factory=dict)
    n_probs: Alternatives = 0
    logprobs: Alternatives = 0
    post_sampling_probs: bool = False

    stop: Text | Texts = Field(default_factory=list)
    ignore_eos: bool = False
    n_indent: Annotated[int, Field(ge=0, le=1024)] = 0
    t_max_prompt_ms: AtLeastMinus1 = 0  # editors send it; it has no effect in llama-server
    t_max_predict_ms: AtLeastMinus1 = 0
    grammar: str = ""
    json_schema: dict[str, JsonValue] | bool | None = None

    cache_prompt: bool = True
    id_slot: AtLeastMinus1 = -1
    n_keep: AtLeastMinus1 = 0  # nothing is ever discarded

    return_tokens: bool = False
    return_progress: bool = False
    timings_per_token: bool = False
    response_fields: Annotated[list[str], Field(max_length=128)] = Field(default_factory=list)
    sse_ping_interval: PingInterval | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        for names in ALIASES:
            given = self.model_fields_set & set(names)
            if len({getattr(self, name) for name in given}) > 1:
                listed = ", ".join(f"`{name}`" for name in names if name in given)
                raise refused(
                    f"{listed} are names of one field and must have the same value", max(given)
                )
        if self.grammar and self.json_schema is not None:
            raise refused("`json_schema` cannot be combined with `grammar`", "json_schema")
        if self.sse_ping_interval == 0:
            raise refused("`sse_ping_interval` must be -1, or 1 or more", "sse_ping_interval")
        return self

    def one_of(self, *names: str) -> int:
        """The value of a field, by any of its names."""
        given = [name for name in names if name in self.model_fields_set]
        value: int = getattr(self, (given or names)[0])
        return value

    @property
    def token_limit(self) -> int:
        return self.one_of(*ALIASES[0])

    @property
    def alternatives(self) -> int:
        return self.one_of(*ALIASES[1])

    @property
    def choices(self) -> int:
        return self.one_of(*ALIASES[2])

    @property
    def plan_options(self) -> PlanOptions:
        return PlanOptions(
            choices=self.choices,
            max_tokens=None if self.token_limit < 0 else self.token_limit,
            stops=self.stops,
            ignore_eos=self.ignore_eos,
            is_cached=self.cache_prompt,
            id_slot=self.id_slot,
            lora=self.lora_scales,
            tells_progress=self.return_progress and self.stream,
        )

    @property
    def sources(self) -> list[Source]:
        """The media of all prompts, in their order."""
        return []

    @property
    def is_heavy(self) -> bool:
        """Whether there is a grammar to write or a vocabulary to search."""
        return bool(self.grammar or self.dry_multiplier) or self.json_schema is not None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)


class LlamaCompletionRequest(CompletionFields):
    prompt: Prompt

    @property
    def prompts(self) -> list[OnePrompt]:
        """One entry for each prompt. A list with an id is one prompt; other lists are several."""
        if not isinstance(self.prompt, list):
            return [self.prompt]
        parts = [part for part in self.prompt if isinstance(part, str | int)]
        if any(isinstance(part, int) for part in parts):
            return [parts]
        return [part for part in self.prompt if not isinstance(part, int)]

    @property
    def sources(self) -> list[Source]:
        prompts = enumerate(self.prompts) if isinstance(self.prompt, list) else [(-1, self.prompt)]
        return [
            source
            for index, prompt in prompts
            if isinstance(prompt, PromptObject)
            for source in prompt.sources("prompt" if index < 0 else f"prompt[{index}]")
        ]

    @model_validator(mode="after")
    def _prompts_are_clear(self) -> Self:
        if isinstance(self.prompt, list):
            kinds = [isinstance(part, int) + 2 * isinstance(part, str) for part in self.prompt]
            if 1 in kinds and 0 in kinds:
                raise refused(
                    "`prompt` must be one prompt of token ids or a list of prompts, not both",
                    "prompt",
                )
        if len(self.prompts) * self.choices > MAX_SEQUENCES:
            raise refused(f"`prompt` must give at most {MAX_SEQUENCES} choices in all", "prompt")
        if sum(map(texts_in, self.prompts)) > MAX_TEXTS:
            raise refused(f"`prompt` must have at most {MAX_TEXTS} texts", "prompt")
        return self


def texts_in(prompt: OnePrompt) -> int:
    return sum(isinstance(part, str) for part in prompt) if isinstance(prompt, list) else 1


def parse_completion(body: object) -> LlamaCompletionRequest:
    return parse(LlamaCompletionRequest, given_fields(body))


def given_fields(body: object) -> dict[str, object]:
    """The fields of a body that are neither null nor neutral. Raises Refused."""
    served = refuse_unsupported(body, NEUTRAL)
    return {name: value for name, value in served.items() if value is not None}
