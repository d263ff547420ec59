"""Token events of one sequence to text deltas; folding the deltas gives the unary answer."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from deployments.text.detokenizer import Detokenizer
from deployments.text.stops import StopMatcher
from deployments.text.tokenizer import TextTokenizer
from deployments.wire import FinishReason, RequestError, TokenEvent, TokenLogprob


@dataclass(frozen=True, slots=True)
class PlacedLogprob:
    """A token's log-probability and where in the generated text its first character is."""

    offset: int
    token: TokenLogprob


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """What a sequence adds to its answer; counts are of the whole sequence so far.

    `stop` is the stop string or stop token that ended it.
    """

    text: str = ""
    logprobs: tuple[PlacedLogprob, ...] = ()
    output_tokens: int = 0
    cached_tokens: int = 0
    finish_reason: FinishReason | None = None
    stop: str | int | None = None
    error: RequestError | None = None


class TextStream:
    """One sequence's text. A delta with a finish reason is the last: leave the event stream then.

    A token's log-probability comes with the first character it takes part in; when a stop string
    cuts the text, tokens wholly behind the cut report none. The text of the first `min_tokens`
    tokens is not searched for stop strings.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        *,
        stops: Sequence[str] = (),
        include_stop: bool = False,
        skip_special_tokens: bool = True,
        min_tokens: int = 0,
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens)
        self._matcher = StopMatcher(stops, include_stop)
        self._min_tokens = min_tokens
        self._waiting: deque[PlacedLogprob] = deque()
        self._released = 0  # characters
        self._output_tokens = 0
        self._cached_tokens = 0

    def push(self, event: TokenEvent) -> TextDelta:
        self._cached_tokens = max(self._cached_tokens, event.cached_tokens)
        text = "".join(self._pieces(event))
        self._released += len(text)
        matched = self._matcher.matched
        finish_reason = event.finish_reason if matched is None else FinishReason.STOP
        return TextDelta(
            text=text,
            logprobs=tuple(self._take(everything=finish_reason is not None and matched is None)),
            output_tokens=self._output_tokens,
            cached_tokens=self._cached_tokens,
            finish_reason=finish_reason,
            stop=event.stop_token_id if matched is None else matched,
            error=None if matched is not None else event.error,
        )

    def _pieces(self, event: TokenEvent) -> Iterator[str]:
        """Text given out token by token, so that counting stops at the one that ends a match."""
        ended = event.stop_token_id is not None
        for place, token_id in enumerate(event.token_ids[:-1] if ended else event.token_ids):
            if event.logprobs is not None:
                placed = PlacedLogprob(self._detokenizer.offset, event.logprobs[place])
                self._waiting.append(placed)
            self._output_tokens += 1
            yield self._search(self._detokenizer.push((token_id,)))
            if self._matcher.matched is not None:
                return
        self._output_tokens += ended
        if event.finish_reason is not None:
            yield self._search(self._detokenizer.flush())
            yield self._matcher.flush()

    def _search(self, text: str) -> str:
        return text if self._output_tokens <= self._min_tokens else self._matcher.push(text)

    def _take(self, *, everything: bool) -> Iterator[PlacedLogprob]:
        while self._waiting and (everything or self._waiting[0].offset < self._released):
            yield self._waiting.popleft()


def fold(deltas: Iterable[TextDelta]) -> TextDelta:
    """A whole answer as one delta: the last one, with the text and log-probabilities of all."""
    parts = list(deltas)
    return replace(
        parts[-1],
        text="".join(part.text for part in parts),
        logprobs=tuple(entry for part in parts for entry in part.logprobs),
    )
