"""The frozen messages that cross actors: one request down, one event up, one card a model."""

from dataclasses import dataclass
from enum import StrEnum


class ErrorKind(StrEnum):
    """Why a request was refused or ended early; `deployments.ingress.errors` has the statuses."""

    INVALID_REQUEST = "invalid_request"
    CONTEXT_LENGTH = "context_length"
    NOT_FOUND = "not_found"
    MODEL_NOT_FOUND = "model_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    BODY_TOO_LARGE = "body_too_large"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    OVERLOADED = "overloaded"
    MODEL_REPLACED = "model_replaced"
    UNAVAILABLE = "unavailable"
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

    def __str__(self) -> str:
        return self.error.message


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How a token is drawn. A neutral value switches its strategy off.

    temperature 0 is greedy; top_k 0 keeps all; logprobs is the number of alternatives to report
    beside the drawn token, None for no logprobs at all. The draw at position p depends on
    (seed, p) alone.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int = 0
    logprobs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One sequence to continue.

    `produced_ids` are tokens that an earlier replica produced for this request: they count as
    output (limits, penalties, positions), and only what follows them is generated.
    `max_tokens` None means up to the end of the context.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    produced_ids: tuple[int, ...] = ()
    sampling: SamplingParams = SamplingParams()
    max_tokens: int | None = None
    min_tokens: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    cache_salt: str = ""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log-probabilities of the model's own distribution, before penalties and temperature."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()  # (token id, logprob), most likely first


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenEvent:
    """Everything a sequence has produced since its last event.

    The last event of a sequence, and only that, has a `finish_reason`. When an end token or one of
    `stop_token_ids` ended it, that token is the last of `token_ids` and is named in
    `stop_token_id`: it counts as output and is no text. `error` is set when the reason is ERROR.
    `cached_tokens` is the number of prompt tokens served from the prefix cache.
    """

    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] | None = None  # one per token id when asked for
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    cached_tokens: int = 0
    error: RequestError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """What an ingress must know of a model to turn text into ids and back, without its files."""

    name: str
    version: str  # changes with anything that changes ids, text or limits
    created: int  # Unix seconds
    context_length: int  # prompt and output together
    vocab_size: int
    page_size: int
    tokenizer_json: str
    chat_template: str | None
    special_tokens: tuple[tuple[str, str], ...]  # ("bos_token", "<s>"), ... as templates name them
    eos_token_ids: tuple[int, ...]
    sampling: SamplingParams  # the model's own defaults, from its generation config


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLoad:
    """How busy one replica of a model is."""

    replica_id: str
    running: int
    waiting: int


class ModelState(StrEnum):
    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStatus:
    """A model as the router knows it; `message` says why it failed."""

    name: str
    application: str
    state: ModelState
    created: int  # Unix seconds
    message: str = ""
