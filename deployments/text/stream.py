"""Turns the token events of one sequence into text deltas. Folded, they are the unary answer."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from deployments.contract.errors import RequestError
from deployments.contract.events import CachedBySource, FinishReason, TokenEvent, TokenLogprob
from deployments.contract.outputs import Vectors, join_vectors
from deployments.text.dialects.parsing.pieces import (
    CallArguments,
    CallStart,
    Piece,
    ReplyParser,
    Thought,
)
from deployments.text.stop_strings import AnswerMatcher, StopMatcher
from deployments.text.tokens.detokenizer import Detokenizer
from deployments.text.tokens.tokenizer import TextTokenizer


@dataclass(frozen=True, slots=True)
class LogprobAtOffset:
    """A token's log-probability, and the offset of its first character in the generated text."""

    offset: int
    token: TokenLogprob


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """The part that a sequence adds to its answer. Counts are of the whole sequence so far.

    `pieces` are the parsed text, if the stream has a parser. `thought_tokens` are the tokens of its
    thoughts. `prompt_tokens` are those of the prompt that are computed, in progress events only.
    `accepted_tokens` of the `drafted_tokens` were right. `stop` is the stop string or stop token
    that ended the sequence. `vectors` are the answer of a sequence that has no text.
    """

    text: str = ""
    pieces: tuple[Piece, ...] = ()
    logprobs: tuple[LogprobAtOffset, ...] = ()
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None
    token_ids: tuple[int, ...] = ()
    output_tokens: int = 0
    thought_tokens: int = 0
    cached_tokens: int = 0
    cached_by_source: CachedBySource = ()
    prompt_tokens: int | None = None
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    finish_reason: FinishReason | None = None
    stop: str | int | None = None
    vectors: Vectors | None = None
    error: RequestError | None = None


class TextStream:
    """The text of one sequence. After a delta with a finish reason the caller leaves the events.

    A token's log-probability comes with its first character. Where a stop string cuts the text, the
    tokens behind the cut have none. The token that ends the sequence has no text; its logprob comes
    only with `scores_end`. The text of the first `min_tokens` tokens is not searched for stop
    strings; with `skips_thoughts`, nor are thoughts and the marks of the parser's dialect.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        *,
        stops: Sequence[str] = (),
        include_stop: bool = False,
        skip_special_tokens: bool = True,
        kept_specials: frozenset[int] = frozenset(),
        min_tokens: int = 0,
        parser: ReplyParser | None = None,
        skips_thoughts: bool = False,
        scores_end: bool = False,
    ) -> None:
        self._detokenizer = Detokenizer(tokenizer, skip_special_tokens, kept_specials=kept_specials)
        self._matcher = StopMatcher(stops, include_stop)
        # None: all text is searched before it is parsed.
        self._answer = AnswerMatcher(self._matcher) if stops and skips_thoughts else None
        self._unreturned = ""  # text that `_answer` may cut
        self._min_tokens = min_tokens
        self._parser = parser
        self._scores_end = scores_end
        self._pieces: list[Piece] = []
        self._tokens_since_piece = 0  # their text is held back, or belongs to the next piece
        self._thought_tokens = 0
        self._token_ids: list[int] = []
        self._held_back_logprobs: deque[LogprobAtOffset] = deque()
        self._returned = 0  # characters
        self._output_tokens = 0
        self._cached_tokens = 0
        self._cached_by_source: CachedBySource = ()
        self._drafted_tokens = self._accepted_tokens = 0

    @property
    def may_stop(self) -> bool:
        """Whether its text may end it, which the engine knows nothing of."""
        return self._matcher.has_stops

    @property
    def is_complete(self) -> bool:
        """Whether a stop string has ended it: no further event is needed."""
        return self._matcher.matched is not None

    def push(self, event: TokenEvent) -> TextDelta:
        is_of_newest = event.token_ids or event.prompt_tokens is not None  # of several attempts
        if is_of_newest or event.cached_tokens > self._cached_tokens:
            self._cached_tokens = event.cached_tokens
            self._cached_by_source = event.cached_by_source
        self._drafted_tokens += event.drafted_tokens
        self._accepted_tokens += event.accepted_tokens
        text = self._uncut(self._read(event), is_last=event.finish_reason is not None)
        pieces, self._pieces = self._pieces, []
        token_ids, self._token_ids = self._token_ids, []
        self._returned += len(text)
        matched = self._matcher.matched
        finish_reason = event.finish_reason if matched is None else FinishReason.STOP
        return TextDelta(
            text=text,
            pieces=join_pieces(pieces) if len(pieces) > 1 else tuple(pieces),
            logprobs=self._take_logprobs(everything=finish_reason is not None and matched is None),
            prompt_logprobs=event.prompt_logprobs,
            token_ids=tuple(token_ids),
            output_tokens=self._output_tokens,
            thought_tokens=self._thought_tokens,
            cached_tokens=self._cached_tokens,
            cached_by_source=self._cached_by_source,
            prompt_tokens=event.prompt_tokens,
            drafted_tokens=self._drafted_tokens,
            accepted_tokens=self._accepted_tokens,
            finish_reason=finish_reason,
            stop=event.stop_token_id if matched is None else matched,
            error=None if matched is not None else event.error,
        )

    def _read(self, event: TokenEvent) -> str:
        """Token by token, so that the count ends with the token that completes a stop string."""
        ended = event.stop_token_id is not None
        texts: list[str] = []
        for index, token_id in enumerate(event.token_ids[:-1] if ended else event.token_ids):
            if event.logprobs is not None:
                logprob = LogprobAtOffset(self._detokenizer.offset, event.logprobs[index])
                self._held_back_logprobs.append(logprob)
            texts.append(self._read_token(token_id))
            if self._matcher.matched is not None:
                self._finish_parsing(is_cut=True)
                return "".join(texts)
        if ended:
            self._output_tokens += 1
            self._token_ids.append(event.token_ids[-1])
        if event.finish_reason is not None:
            texts.append(self._parse(self._search(self._detokenizer.flush())))
            if ended and self._scores_end and event.logprobs is not None:
                logprob = LogprobAtOffset(self._detokenizer.offset, event.logprobs[-1])
                self._held_back_logprobs.append(logprob)
            if self._answer is None:
                texts.append(self._parse(self._matcher.flush()))
            self._finish_parsing(is_cut=event.finish_reason is not FinishReason.STOP)
        return "".join(texts)

    def _read_token(self, token_id: int) -> str:
        self._output_tokens += 1
        self._token_ids.append(token_id)
        self._tokens_since_piece += 1
        return self._parse(self._search(self._detokenizer.push((token_id,))))

    def _parse(self, text: str) -> str:
        if self._parser is not None:
            self._add_pieces(self._parser.push(text))
        return text

    def _finish_parsing(self, *, is_cut: bool) -> None:
        if self._parser is not None:
            self._add_pieces(self._parser.finish(is_cut=is_cut))
        if self._answer is not None:
            self._pieces += self._answer.flush()

    def _add_pieces(self, pieces: list[Piece]) -> None:
        if pieces:
            is_thought = isinstance(pieces[0], Thought)
            self._thought_tokens += self._tokens_since_piece if is_thought else 0
            self._tokens_since_piece = 0
            answer = None if self._is_below_minimum else self._answer
            self._pieces += pieces if answer is None else answer.push(pieces)

    @property
    def _is_below_minimum(self) -> bool:
        return self._output_tokens <= self._min_tokens

    def _search(self, text: str) -> str:
        if self._answer is not None or self._is_below_minimum:
            return text
        return self._matcher.push(text)

    def _uncut(self, text: str, is_last: bool) -> str:
        """The text that is before any cut of `_answer`."""
        if self._answer is None:
            return text
        whole = self._unreturned + text
        n_cut = self._answer.n_cut
        if self._matcher.matched is None:
            n_cut = 0 if is_last else self._matcher.n_held_back
        end = max(len(whole) - n_cut, 0)
        self._unreturned = whole[end:]
        return whole[:end]

    def _take_logprobs(self, *, everything: bool) -> tuple[LogprobAtOffset, ...]:
        taken: list[LogprobAtOffset] = []
        while self._held_back_logprobs and (
            everything or self._held_back_logprobs[0].offset < self._returned
        ):
            taken.append(self._held_back_logprobs.popleft())
        return tuple(taken)


def fold(deltas: Iterable[TextDelta]) -> TextDelta:
    """A whole answer as one delta: the last delta, with the text, pieces and tokens of all."""
    parts = list(deltas)
    if len(parts) == 1:
        return parts[0]
    prompt = (part.prompt_logprobs for part in parts if part.prompt_logprobs is not None)
    return replace(
        parts[-1],
        text="".join(part.text for part in parts),
        pieces=join_pieces(piece for part in parts for piece in part.pieces),
        logprobs=tuple(entry for part in parts for entry in part.logprobs),
        prompt_logprobs=next(prompt, None),
        token_ids=tuple(token_id for part in parts for token_id in part.token_ids),
        vectors=join_vectors([part.vectors for part in parts if part.vectors is not None]),
    )


def join_pieces(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Joins adjacent pieces of one kind."""
    return tuple(_joined(list(run)) for _, run in groupby(pieces, _kind))


def _kind(piece: Piece) -> object:
    match piece:
        case CallStart():
            return piece  # equal to no other piece
        case CallArguments(index):
            return index
    return type(piece)


def _joined(run: Sequence[Piece]) -> Piece:
    first = run[0]
    if len(run) == 1 or isinstance(first, CallStart):
        return first
    return replace(
        first, text="".join(piece.text for piece in run if not isinstance(piece, CallStart))
    )
