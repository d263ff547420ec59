"""How far and how fast an answer is, in llama-server's words; all numbers are finite and >= 0."""

import time
from typing import Protocol

from deployments.contract.events import TokenEvent
from deployments.ingress.generation.response_builder import SequenceText, cached_details
from deployments.text.stream import TextDelta


class Timed(Protocol):
    """Seconds of one clock: when it was asked for, of its first token, and of the newest."""

    started: float
    first: float
    last: float


class TimedText:
    """A sequence's text, and when it came."""

    def __init__(self, text: SequenceText) -> None:
        self._text = text
        self.started = self.first = self.last = time.monotonic()
        self._begun = False

    @property
    def may_stop(self) -> bool:
        return self._text.may_stop

    @property
    def is_complete(self) -> bool:
        return self._text.is_complete

    def push(self, event: TokenEvent) -> TextDelta:
        delta = self._text.push(event)
        self.last = time.monotonic()
        if not self._begun:
            self._begun, self.first = delta.output_tokens > 0, self.last
        return delta


def progress(text: Timed, delta: TextDelta, processed: int, prompt_tokens: int) -> dict[str, float]:
    """Returns how many of the prompt's tokens are computed."""
    return {
        "total": prompt_tokens,
        "cache": delta.cached_tokens,
        "processed": processed,
        "time_ms": round(1000 * (text.last - text.started)),
    }


def timings(text: Timed, delta: TextDelta, prompt_tokens: int) -> dict[str, object]:
    """Returns the timings up to `delta`; those of drafts where anything was drafted, and where
    cached tokens came from if not from the device alone.

    The prompt's time includes waiting; the first token belongs to it.
    """
    computed = max(prompt_tokens - delta.cached_tokens, 0)
    steps = max(delta.output_tokens - 1, 0)
    prompt_ms = 1000 * (text.first - text.started)
    predicted_ms = 1000 * (text.last - text.first)
    return {
        "cache_n": delta.cached_tokens,
        "prompt_n": computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": _ratio(prompt_ms, computed),
        "prompt_per_second": _ratio(1000 * computed, prompt_ms),
        "predicted_n": delta.output_tokens,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": _ratio(predicted_ms, steps),
        "predicted_per_second": _ratio(1000 * steps, predicted_ms),
        **cached_details(delta.cached_by_source),
        **_drafts(delta),
    }


def _drafts(delta: TextDelta) -> dict[str, float]:
    if not delta.drafted_tokens:
        return {}
    return {"draft_n": delta.drafted_tokens, "draft_n_accepted": delta.accepted_tokens}


def _ratio(amount: float, of: float) -> float:
    return amount / of if of > 0 else 0.0
