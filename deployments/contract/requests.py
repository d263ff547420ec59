"""The request that goes down to an engine, and the parameters that it has."""

from dataclasses import dataclass, field

from deployments.contract.grammar_triggers import GrammarTriggers
from deployments.contract.media_rules import MediaKind
from deployments.contract.outputs import OutputParams
from deployments.contract.speech_rules import TranscriptParams
from kv.arrivals import PrefixHolder
from kv.content import PLAIN, Content


@dataclass(frozen=True, slots=True, kw_only=True)
class DryParams:
    """Don't Repeat Yourself: a token that would prolong a repetition of n tokens loses
    multiplier * base ** (n - allowed_length).

    Repetitions are looked for in the last `last_n` tokens (-1: all), not across `breakers`.
    """

    multiplier: float
    base: float = 1.75
    allowed_length: int = 2
    last_n: int = -1
    breakers: tuple[int, ...] = ()  # token ids


@dataclass(frozen=True, slots=True, kw_only=True)
class MirostatParams:
    """Mirostat of Basu et al. 2021, version 1 or 2; it takes the place of all truncation.

    `mu` is the state that an earlier replica reported with its last token.
    """

    version: int
    tau: float = 5.0
    eta: float = 0.1
    mu: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How a token is drawn. A neutral value switches its strategy off.

    temperature 0 is greedy; top_k 0 keeps all; logprobs is the number of alternatives to report
    beside the drawn token, None for no logprobs at all. The draw at position p depends on
    (seed, p), the tokens before it and Mirostat's state alone: each token id has its own noise.

    dynatemp_range: the temperature moves this far both ways, with the entropy of the distribution.
    penalty_last_n: None lets the repetition penalty see prompt and output and the other two the
    output; a number lets all three see the last n tokens of both (-1: all), as llama-server does.
    bad_words: sequences of token ids; none is ever completed.
    samplers: order of truncation and temperature by llama-server's names, () for ours.
    min_keep: truncation leaves at least so many tokens.
    sampled_logprobs: logprobs are of the distribution drawn from, and not of the model's own.
    transcript: keeps to the form of what a model hears.
    """

    temperature: float = 1.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int | None = None
    dry: DryParams | None = None
    mirostat: MirostatParams | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()
    samplers: tuple[str, ...] = ()
    min_keep: int = 0
    seed: int = 0
    logprobs: int | None = None
    sampled_logprobs: bool = False
    transcript: TranscriptParams | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ThinkingBudget:
    """After `tokens` tokens of thought, `end_ids` follow whatever the model would have said, or as
    soon as the grammar lets them.

    A thought is what stands between `start_ids` and `end_ids`; `open` says that the prompt has
    begun one. Any of `break_ids` ends one too, as the beginning of a call does.
    """

    tokens: int
    start_ids: tuple[int, ...]
    end_ids: tuple[int, ...]
    break_ids: tuple[tuple[int, ...], ...] = ()
    open: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MediumFile:
    """A file that a replica makes the vectors of a medium of. An ingress has decoded it before."""

    kind: MediaKind
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One sequence to continue.

    `produced_ids` are tokens that an earlier replica produced for this request: they count as
    output (limits, penalties, positions), and only what follows them is generated.
    `max_tokens` None means up to the end of the context; 0 computes the prompt and ends.
    `grammar` is llguidance's, as its LLMatcher reads it, for all of the output; "" for none. With
    `triggers` it is for what follows the first of these.
    `prompt_logprobs` is as `logprobs`, for every token of the prompt but the first.
    Of waiting requests those with the lowest `priority` run first; among equals, `client`s in turn,
    and of one client those with the lowest `own_priority`. What is kept of it on a disk counts as
    `owner`'s, "" for all where no keys are set; nothing is unless `is_kept`.
    `id_slot` numbers the owner's slot that it leaves its sequence in, where slots are saved; -1:
    none.
    `session` names a conversation, whose requests are best served where its last one was.
    `message_starts` are near the indices of tokens that messages begin with: prompts part there.
    With `tells_progress` events say how much of the prompt is computed.
    `output` asks for vectors in the place of tokens: `max_tokens` is 0 then.
    `second_at` is the index of the token that the second text of a pair begins with; 0: one text.
    With `may_gather` a replica may make one event of several between the first and the last.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    produced_ids: tuple[int, ...] = ()
    sampling: SamplingParams = SamplingParams()
    max_tokens: int | None = None
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    content: Content = PLAIN
    grammar: str = ""
    triggers: GrammarTriggers | None = None
    prompt_logprobs: int | None = None
    thinking: ThinkingBudget | None = None
    priority: int = 0
    own_priority: int = 0
    client: str = ""
    owner: str = ""
    is_kept: bool = True
    id_slot: int = -1
    session: str = ""
    response_id: str = ""  # of the whole answer, as the client knows it
    tells_progress: bool = False
    message_starts: tuple[int, ...] = ()
    output: OutputParams | None = None
    second_at: int = 0
    may_gather: bool = False
    media: tuple[MediumFile, ...] = ()
    prefix_holder: PrefixHolder | None = None
