"""The text of llama-server's completions: measures timings, and ends the text by line rules.

Rules are checked for each token, so the grouping of tokens does not change the answer.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from deployments.contract.events import FinishReason, TokenEvent
from deployments.text.stream import TextDelta, TextStream, fold
from deployments.text.tokens.tokenizer import TextTokenizer

Clock = Callable[[], float]  # seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LineRules:
    """indent: white space that every line but the first must begin with, unless it is blank.
    predict_s: from the first token, once there is a second line.
    """

    indent: int = 0
    predict_s: float | None = None


NO_RULES = LineRules()


class CompletionText(TextStream):
    """A sequence that a rule ends has the finish reason LENGTH."""

    def __init__(
        self,
        tokenizer: TextTokenizer,
        stops: Sequence[str],
        rules: LineRules = NO_RULES,
        clock: Clock = time.monotonic,
    ) -> None:
        super().__init__(tokenizer, stops=stops, scores_end=True)
        self._rules = rules
        self._clock = clock
        self._indentation = Indentation(rules.indent) if rules.indent else None
        self._length = 0  # characters returned
        self.has_new_line = False
        self.started = self.first = self.last = clock()
        self._begun = False

    def push(self, event: TokenEvent) -> TextDelta:
        self.last = self._clock()
        if not self._begun:
            self._begun, self.first = _is_of_the_answer(event), self.last
        if self._rules is NO_RULES:
            return self._seen(super().push(event))
        return fold(self._until_ended(event))

    def _until_ended(self, event: TokenEvent) -> Iterator[TextDelta]:
        for part in single_tokens(event):
            if self._is_over() and part.finish_reason is None:
                part = replace(part, finish_reason=FinishReason.LENGTH)
            delta = self._indented(super().push(part))
            yield self._seen(delta)
            if delta.finish_reason is not None:
                return

    def _is_over(self) -> bool:
        limit_s = self._rules.predict_s
        return self.has_new_line and limit_s is not None and self.last - self.first > limit_s

    def _indented(self, delta: TextDelta) -> TextDelta:
        cut = None if self._indentation is None else self._indentation.breach(delta.text)
        if cut is None:
            return delta
        end = self._length + cut
        return replace(
            delta,
            text=delta.text[:cut],
            logprobs=tuple(entry for entry in delta.logprobs if entry.offset < end),
            finish_reason=FinishReason.LENGTH,
            stop=None,
            error=None,
        )

    def _seen(self, delta: TextDelta) -> TextDelta:
        self._length += len(delta.text)
        self.has_new_line = self.has_new_line or "\n" in delta.text
        return delta


def _is_of_the_answer(event: TokenEvent) -> bool:
    """Whether the event is of the answer, not only of the prompt."""
    return event.prompt_tokens is None or bool(event.token_ids) or event.finish_reason is not None


class Indentation:
    """Finds the first line that is indented by less than `least` characters."""

    def __init__(self, least: int) -> None:
        self._least = least
        self._seen: int | None = None  # white space so far of a line without text

    def breach(self, text: str) -> int | None:
        """The position in the next piece at which the text of such a line begins, or None."""
        for index, character in enumerate(text):
            if character == "\n":
                self._seen = 0
            elif self._seen is not None and character != "\r":
                if character not in " \t":
                    return index
                self._seen = None if self._seen + 1 == self._least else self._seen + 1
        return None


def single_tokens(event: TokenEvent) -> Iterator[TokenEvent]:
    """Splits the event into one for each token. The last has the finish reason."""
    if len(event.token_ids) < 2:
        yield event
        return
    prompt_logprobs = event.prompt_logprobs
    for index, token_id in enumerate(event.token_ids[:-1]):
        logprobs = None if event.logprobs is None else (event.logprobs[index],)
        yield TokenEvent(
            token_ids=(token_id,),
            logprobs=logprobs,
            prompt_logprobs=prompt_logprobs,
            cached_tokens=event.cached_tokens,
            cached_by_source=event.cached_by_source,
            prompt_tokens=event.prompt_tokens if index == 0 else None,
        )
        prompt_logprobs = None
    yield replace(
        event,
        prompt_tokens=None,
        token_ids=event.token_ids[-1:],
        logprobs=None if event.logprobs is None else event.logprobs[-1:],
        prompt_logprobs=None,
    )
