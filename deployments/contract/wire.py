"""The frozen messages that cross actors: one request down, one event up, one card a model."""

from dataclasses import dataclass, field
from enum import StrEnum

from deployments.contract.grammar_triggers import GrammarTriggers
from deployments.contract.media_rules import MediaKind, MediaRules
from deployments.contract.outputs import GENERATES, AnswerKinds, OutputParams, Vectors, join_vectors
from deployments.contract.served_adapters import (
    NO_ADAPTERS,
    PLAIN_MODEL,
    AdapterTable,
    AskedAdapters,
)
from deployments.contract.speech_rules import SpeechRules, TranscriptParams
from kv.content import PLAIN, Content


class ErrorKind(StrEnum):
    """Why a request was refused or ended early; `ingress.http.errors` has the HTTP statuses."""

    INVALID_REQUEST = "invalid_request"
    CONTEXT_LENGTH = "context_length"
    NOT_FOUND = "not_found"
    NO_PREVIOUS_RESPONSE = "no_previous_response"  # that a request could continue
    MODEL_NOT_FOUND = "model_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    FEATURE_DISABLED = "feature_disabled"  # until an operator turns it on
    REQUEST_TIMEOUT = "request_timeout"  # the body did not arrive in time
    GENERATION_TIMEOUT = "generation_timeout"  # the answer did not end in time
    NOT_SUPPORTED = "not_supported"  # switched off, or impossible with this model
    BODY_TOO_LARGE = "body_too_large"
    MISDIRECTED = "misdirected"  # to a name that is not this server's
    CONFLICT = "conflict"  # with what is stored under this id
    GONE = "gone"  # it was deleted
    STALE = "stale"  # made from what is no longer stored
    UPGRADE_REQUIRED = "upgrade_required"  # from a WebSocket to HTTP
    CONDITION_NEEDED = "condition_needed"
    WRONG_DIGEST = "wrong_digest"
    RATE_LIMITED = "rate_limited"
    STORAGE_FULL = "storage_full"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    OVERLOADED = "overloaded"
    MODEL_REPLACED = "model_replaced"
    UNAVAILABLE = "unavailable"
    REPLICA_DIED = "replica_died"  # of this request, it seems
    OUT_OF_MEMORY = "out_of_memory"  # for this request alone
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class RequestError:
    """A refusal or failure as a value: exceptions change their type on the way through Ray."""

    kind: ErrorKind
    message: str
    param: str | None = None


class Refused(Exception):
    """A RequestError raised within one process; between actors the value itself travels."""

    def __init__(self, error: RequestError) -> None:
        super().__init__(error)
        self.error = error

    @classmethod
    def of_kind(cls, kind: ErrorKind, message: str, param: str | None = None) -> "Refused":
        """An exception to raise. `param` is the field of the request that is at fault, if any."""
        return cls(RequestError(kind, message, param))

    def __str__(self) -> str:
        return self.error.message


def refused(message: str, param: str | None = None) -> Refused:
    """A bad request, to be raised. `param` is the field that is at fault, if it is one."""
    return Refused.of_kind(ErrorKind.INVALID_REQUEST, message, param)


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


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
    (seed, p), the tokens before it and Mirostat's state alone.

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
    and of one client those with the lowest `own_priority`.
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
    session: str = ""
    response_id: str = ""  # of the whole answer, as the client knows it
    tells_progress: bool = False
    message_starts: tuple[int, ...] = ()
    output: OutputParams | None = None
    second_at: int = 0
    may_gather: bool = False
    media: tuple[MediumFile, ...] = ()


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log-probabilities of the model's own distribution, before penalties and temperature, unless
    `sampled_logprobs` asked for those of the distribution drawn from.
    """

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (token id, logprob), most likely first


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvent:
    """Everything a sequence has produced since its last event.

    The last event of a sequence, and only that, has a `finish_reason`. When an end token or one of
    `stop_token_ids` ended it, that token is the last of `token_ids` and is named in
    `stop_token_id`: it counts as output and is no text. `error` is set when the reason is ERROR.
    `cached_tokens` is the number of prompt tokens served from the prefix cache; `prompt_tokens` of
    those that are computed so far or were cached, where the request wants to know.
    `prompt_logprobs` come once, with the first token: one per prompt token, None for the first.
    `mirostat_mu` is Mirostat's state after the last token. `drafted_tokens` were guessed since the
    last event, of which `accepted_tokens` were right. `is_thinking_over`: a client has ended its
    thinking. `vectors` of a text may come in several parts, which `merge` joins.
    """

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None  # one per token id when asked for
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    mirostat_mu: float | None = None
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    cached_tokens: int = 0
    prompt_tokens: int | None = None
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    is_thinking_over: bool = False
    vectors: Vectors | None = None
    error: RequestError | None = None

    @classmethod
    def failed(cls, message: str, kind: ErrorKind = ErrorKind.INTERNAL) -> "TokenEvent":
        """The last event of a sequence that ends with an error."""
        return cls(finish_reason=FinishReason.ERROR, error=RequestError(kind, message))


THINKING_OVER = TokenEvent(is_thinking_over=True)


def merge(events: list[TokenEvent]) -> TokenEvent:
    """One event in the place of several consecutive ones of a sequence."""
    if len(events) == 1:
        return events[0]
    last = events[-1]
    logprobs: list[TokenLogprob] = [entry for event in events for entry in event.logprobs or ()]
    states = [event.mirostat_mu for event in events if event.mirostat_mu is not None]
    # With a token the number is final: before, a prompt may be preempted and looked up again.
    cached = [event.cached_tokens for event in events if event.token_ids]
    told = [event.prompt_tokens for event in events if event.prompt_tokens is not None]
    return TokenEvent(
        token_ids=tuple(token_id for event in events for token_id in event.token_ids),
        logprobs=tuple(logprobs) if logprobs else None,
        prompt_logprobs=next(filter(None, (event.prompt_logprobs for event in events)), None),
        mirostat_mu=states[-1] if states else None,
        finish_reason=last.finish_reason,
        stop_token_id=last.stop_token_id,
        cached_tokens=max(cached, default=last.cached_tokens),
        prompt_tokens=max(told, default=None),
        drafted_tokens=sum(event.drafted_tokens for event in events),
        accepted_tokens=sum(event.accepted_tokens for event in events),
        is_thinking_over=any(event.is_thinking_over for event in events),
        vectors=join_vectors([event.vectors for event in events if event.vectors is not None]),
        error=last.error,
    )


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
    answers: AnswerKinds = GENERATES
    media: MediaRules | None = None  # None for a model that reads text only
    speech: SpeechRules | None = None  # of a model that transcribes, and does nothing else
    adapters: AskedAdapters = PLAIN_MODEL  # of the request, which the ingress adds

    @property
    def answers_as(self) -> str:
        """The name of the model in answers: that of an adapter as the request has it."""
        named = self.adapters.named
        return self.name if named is None else self.adapters.asked or self.name


def media_kinds(card: ModelCard) -> tuple[MediaKind, ...]:
    """Returns the kinds of media that the model reads beside text."""
    return () if card.media is None else card.media.kinds


class ModelState(StrEnum):
    """A model that is SLEEPING is deployed and holds neither weights nor pages."""

    DOWNLOADING = "downloading"
    UNLOADED = "unloaded"
    LOADING = "loading"
    READY = "ready"
    SLEEPING = "sleeping"
    UNLOADING = "unloading"
    FAILED = "failed"


DEMO_SOURCE = "demo"  # of models that nobody named, beside the demo model


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """How far a replica, or a download, has come with `stage`, from 0 to 1."""

    stage: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """A model as the router knows it; `message` says why it failed or what it waits for.

    source: where it is from: "argument", DEMO_SOURCE, "preset", "folder" or "download".
    preset: its section of the INI file, completed from `[*]`; "" without one.
    starters: questions that a page may offer.
    modalities: what it takes, by its files; None: only its card will say it.
    replicas: those that answer; `replicas_target`: those that there are to be.
    version: of the card that most of them have; "" while none has said it.
    unloads: by operators, so far.
    will_retry: after it failed, without being asked for.
    has_any_name: requests with names that no model has are its requests.
    adapters: that requests may choose.
    """

    name: str
    application: str
    state: ModelState
    created: int  # Unix seconds
    message: str = ""
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    source: str = "argument"
    preset: str = ""
    starters: tuple[str, ...] = ()
    modalities: tuple[str, ...] | None = None
    pinned: bool = False
    replicas: int = 0
    replicas_target: int = 0
    version: str = ""
    unloads: int = 0
    will_retry: bool = False
    progress: LoadProgress | None = None
    has_any_name: bool = False
    adapters: AdapterTable = NO_ADAPTERS
