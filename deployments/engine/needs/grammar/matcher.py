"""Keeps sequences in their grammars. Masks are computed beside the engine's thread, which only says
what was sampled. The work of one token is bounded.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet

import numpy as np

from deployments.engine.needs.grammar.draft_masks import DraftMasks, compute_mask, follow
from deployments.engine.needs.grammar.free_text import FreeText
from deployments.engine.needs.grammar.mask_worker import MaskWorker
from deployments.engine.tasks.constraint import Bitmask, Constraint
from deployments.text.grammar.matcher import FAILED, error_of

if TYPE_CHECKING:
    from llguidance import LLMatcher

log = logging.getLogger(__name__)

SLOW_MASK_S = 0.005  # of a core, above which a step does not compute the next mask itself
ALL = np.uint32(0xFFFFFFFF)


class CompiledGrammar:
    """One grammar for all sequences that use it. The first one compiles it; all copy it.

    slow: those whose last mask took long. llguidance has one lock for all copies, so then what any
        of them does takes long.
    """

    def __init__(self) -> None:
        self.matcher: Future[LLMatcher] = Future()
        self.slow: WeakSet[GrammarMatcher] = WeakSet()


class GrammarMatcher(Constraint):
    """The state of one sequence in its grammar.

    What takes long is done on another thread, between steps that the sequence has no part in.
    """

    def __init__(
        self,
        source: CompiledGrammar,
        worker: MaskWorker,
        banned_ends: Sequence[int],
        end_token_ids: Set[int],
        free: FreeText | None = None,
    ) -> None:
        """banned_ends: ends by llguidance's account that do not end this sequence.
        end_token_ids: tokens that end it.
        free: the output does not follow the grammar yet."""
        self._free = free
        self._refused: set[int] = set()  # of what could come next while it is free
        self.matcher = source.matcher.result().deep_copy()
        self.worker = worker
        self._source = source  # kept: it shares its memory with the copy
        self._banned_ends = banned_ends
        self._ends = {*banned_ends, *end_token_ids}
        self.masked: Future[None] | None = None  # behind the known tokens, where it has begun
        self._mask: Bitmask | None = None
        self._mask_cost = 0.0  # of the last mask, in seconds of a core
        self._advanced: Future[None] | None = None  # where a token is being read
        self._ahead: DraftMasks | None = None  # behind drafted tokens
        self._awaited: Future[None] | None = None  # whose end is told

    @property
    def is_slow(self) -> bool:
        """Whether the next token may take long to read, and the mask behind it to compute."""
        return self.has_begun and bool(self._source.slow)

    @property
    def has_begun(self) -> bool:
        return self._free is None

    @property
    def is_masking(self) -> bool:
        return self.has_begun or bool(self._refused)

    @property
    def is_busy(self) -> bool:
        """Whether another thread works on it."""
        return any(not future.done() for future in self.begun)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Calls back, on any thread, when something of what is in progress is done: once, however
        often it is asked for that."""
        in_progress = next((future for future in self.begun if not future.done()), None)
        if in_progress is not None and in_progress is not self._awaited:
            self._awaited = in_progress
            in_progress.add_done_callback(lambda _: callback())

    @property
    def begun(self) -> "list[Future[None]]":
        """The work that other threads do for it, or have done for its next token."""
        ahead = None if self._ahead is None else self._ahead.computed
        begun = (self.masked, self._advanced, ahead)
        return [future for future in begun if future is not None]

    def note_slow(self) -> None:
        """Its mask takes long, until one does not."""
        self._source.slow.add(self)

    def prepare(self) -> bool:
        """Whether a step can have the sequence's next token: not before what takes long is done.
        Begins the mask where that takes long."""
        if self.is_slow and self.masked is None and not self.is_busy:
            self.begin_mask(self.worker.begin_long(self.compute_mask, self._mask_cost))
        return not self.is_busy

    def begin_mask(self, masked: "Future[None]") -> None:
        """`masked` ends when `compute_mask` has."""
        self.masked = masked

    def compute_mask(self) -> None:
        """Computes the mask, on a thread of the worker."""
        mask = np.zeros(self.worker.n_words, dtype=np.uint32)
        before = time.thread_time()
        compute_mask(self.matcher, mask, self._banned_ends)
        self._mask_cost = time.thread_time() - before
        if self._mask_cost > SLOW_MASK_S:
            self.note_slow()
        else:
            self._source.slow.discard(self)
        self._mask = mask

    @property
    def can_look_ahead(self) -> bool:
        return not self.is_masking or (self.has_begun and not self.is_slow)

    def draft(self, guess: Sequence[int], n_max: int, n_forced: int) -> tuple[Sequence[int], int]:
        """The same, for as many tokens as have masks in the time of a slow one. None of them ends
        the sequence."""
        if not self.is_masking:
            return guess, len(guess)
        n_max = min(n_max, int(SLOW_MASK_S / max(self._mask_cost, 1e-6)))
        drafted: Sequence[int] = ()
        n_guessed = 0
        with self._failing_alone():
            drafted, n_guessed = follow(self.matcher, self._before_end(guess), n_max, n_forced)
        drafted = self._before_end(drafted)
        return drafted, min(n_guessed, len(drafted))

    def _before_end(self, token_ids: Sequence[int]) -> Sequence[int]:
        ends = (i for i, token_id in enumerate(token_ids) if token_id in self._ends)
        return token_ids[: next(ends, len(token_ids))]

    def look_ahead(self, drafted: Sequence[int]) -> DraftMasks:
        """Makes the masks of a step with these drafted tokens."""
        self._ahead = DraftMasks(self.matcher, drafted, self.worker.n_words, self._banned_ends)
        return self._ahead

    def mask(self, n_drafted: int = 0) -> Bitmask:
        """Which tokens may follow so many drafted ones, for a step that `begin_masks` was called
        for. [vocab / 32]"""
        if n_drafted:
            assert self._ahead is not None
            return self._ahead.behind(n_drafted)
        if not self.has_begun:
            self._mask = np.full(self.worker.n_words, ALL, dtype=np.uint32)
            for token_id in self._refused:
                self._mask[token_id // 32] &= ~np.uint32(1 << token_id % 32)
            return self._mask
        assert self.masked is not None
        if (failure := self.masked.exception()) is not None:
            self.masked = None  # and is computed again where the step is
            raise failure
        assert self._mask is not None
        return self._mask

    def allows(self, token_id: int, n_drafted: int) -> bool:
        if not self.is_masking:
            return True
        return bool(self.mask(n_drafted)[token_id // 32] >> np.uint32(token_id % 32) & 1)

    def begins_in(self, token_ids: Sequence[int]) -> bool:
        return self._free is not None and self._free.peek(token_ids) is not None

    def refuses(self, token_id: int) -> bool:
        """Whether the token begins the grammar, and holds more text that the grammar does not allow
        there. It is banned then, until another one follows."""
        with self._failing_alone():
            begun = None if self._free is None else self._free.peek([token_id])
            if begun is not None and self.matcher.validate_tokens(begun) < len(begun):
                self._refused.add(token_id)
                return True
        return False

    def defers(self, token_id: int) -> bool:
        if not self.is_slow:
            return False
        job = partial(self._follow, [token_id])
        self._advanced = self.worker.begin_long(job, self._mask_cost)
        return True

    @property
    def is_read(self) -> bool:
        return not self.is_busy

    def advance(self, token_id: int) -> None:
        with self._failing_alone():
            if self._advanced is not None:
                self._advanced.result()
            elif begun := self._begun_by([token_id]):
                self.matcher.consume_tokens(begun)
                self._end_if_stopped()
        self.masked = self._advanced = self._ahead = None

    def resume(self, token_ids: Sequence[int]) -> None:
        """These tokens follow, none of which is an end token. Leaves the other threads running,
        however long it takes."""
        if begun := self._begun_by(token_ids):
            self._follow(begun)

    def _begun_by(self, token_ids: Sequence[int]) -> list[int]:
        """Returns what the grammar reads of the next tokens: what is no longer free, in any
        tokens."""
        self._refused.clear()
        if self._free is None:
            return [*token_ids]
        begun = self._free.read(token_ids)
        if begun is not None:
            self._free = None
        return begun or []

    def _follow(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            self.worker.consume(self.matcher, token_id)
        self._end_if_stopped()

    @contextmanager
    def _failing_alone(self) -> Iterator[None]:
        """Ends this sequence where llguidance raises, and not the engine's thread: a panic in its
        Rust is no Exception."""
        try:
            yield
        except BaseException:
            log.exception("a grammar failed")
            self.failure = f"grammar: {FAILED}"

    def _end_if_stopped(self) -> None:
        if self.matcher.is_stopped():
            self.stall()

    def stall(self) -> None:
        if not self.has_begun:  # by nothing of the grammar's
            return
        if self.matcher.is_error():
            self.failure = f"grammar: {error_of(self.matcher)}"
        elif self.matcher.is_accepting():
            self.is_over = True
        else:
            self.failure = "grammar: it allows no token that is not banned otherwise"
