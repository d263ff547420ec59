"""The events of a sequence, which come up from an engine."""

from dataclasses import dataclass
from enum import StrEnum

from deployments.contract.errors import ErrorKind, RequestError
from deployments.contract.outputs import Vectors, join_vectors


class CacheSource(StrEnum):
    """The places that cached tokens come from; all but the first are tiers or other replicas."""

    DEVICE = "device"
    RAM = "ram"
    DISK = "disk"
    REMOTE = "remote"


CachedBySource = tuple[tuple[CacheSource, int], ...]


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


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
    `cached_tokens` is the number of prompt tokens served from the prefix cache. `cached_by_source`
    adds up to it, and names each source that the replica has; it is empty where that is the device
    alone. `prompt_tokens` is the number of those that are computed so far or were cached, where the
    request wants to know.
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
    cached_by_source: CachedBySource = ()
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
    final = (event for event in events if event.token_ids)
    cached = max(final, key=lambda event: event.cached_tokens, default=last)
    told = [event.prompt_tokens for event in events if event.prompt_tokens is not None]
    return TokenEvent(
        token_ids=tuple(token_id for event in events for token_id in event.token_ids),
        logprobs=tuple(logprobs) if logprobs else None,
        prompt_logprobs=next(filter(None, (event.prompt_logprobs for event in events)), None),
        mirostat_mu=states[-1] if states else None,
        finish_reason=last.finish_reason,
        stop_token_id=last.stop_token_id,
        cached_tokens=cached.cached_tokens,
        cached_by_source=cached.cached_by_source,
        prompt_tokens=max(told, default=None),
        drafted_tokens=sum(event.drafted_tokens for event in events),
        accepted_tokens=sum(event.accepted_tokens for event in events),
        is_thinking_over=any(event.is_thinking_over for event in events),
        vectors=join_vectors([event.vectors for event in events if event.vectors is not None]),
        error=last.error,
    )
