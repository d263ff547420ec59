"""Keeps sequences in their grammars: compiled and masked beside the engine's thread, which only
says what was drawn. Whatever is kept for it, and the work of one token, is bounded.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakSet, WeakValueDictionary

import numpy as np
from tokenizers import Tokenizer

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.requests import GenerationRequest
from deployments.engine.tasks.free_text import FreeText, FreeTexts
from deployments.engine.tasks.grammar_drafts import Bitmask, DraftMasks, compute_mask, follow
from deployments.engine.tasks.mask_worker import MaskWorker
from deployments.text.grammar.grammar import MAX_GRAMMAR_BYTES
from deployments.text.grammar.ll_tokenizer import ll_tokenizer
from deployments.text.grammar.matcher import FAILED, build_matcher, error_of

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

log = logging.getLogger(__name__)

MAX_COMPILED = 64  # kept after their last use
MAX_ALIVE_BYTES = 4 << 20  # of all texts; a compiled grammar takes up to 210 bytes for each
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


class GrammarMatcher:
    """The state of one sequence in its grammar.

    What takes long is done on another thread, between steps that the sequence has no part in.

    `is_over`: the output is complete and nothing may follow. `failure`: why it can't go on.
    """

    def __init__(
        self,
        source: CompiledGrammar,
        worker: MaskWorker,
        banned_ends: Sequence[int],
        free: FreeText | None = None,
    ) -> None:
        """`free`: the output does not follow the grammar yet."""
        self._free = free
        self._refused: set[int] = set()  # of what could come next while it is free
        self.matcher = source.matcher.result().deep_copy()
        self.worker = worker
        self._source = source  # kept: it shares its memory with the copy
        self.is_over = False
        self.failure = ""
        self._banned_ends = (
            banned_ends  # ends by llguidance's account that do not end this sequence
        )
        self.masked: Future[None] | None = None  # behind the known tokens, where it has begun
        self._mask: Bitmask | None = None
        self._mask_cost = 0.0  # of the last mask, in seconds of a core
        self._advanced: Future[None] | None = None  # where a token is being read
        self._ahead: DraftMasks | None = None  # behind drafted tokens

    @property
    def is_slow(self) -> bool:
        """Whether the next token may take long to read, and the mask behind it to compute."""
        return self.has_begun and bool(self._source.slow)

    @property
    def has_begun(self) -> bool:
        return self._free is None

    @property
    def is_masking(self) -> bool:
        """Whether the next token can't be any."""
        return self.has_begun or bool(self._refused)

    @property
    def is_busy(self) -> bool:
        """Whether another thread works on it."""
        return any(not future.done() for future in self.begun)

    def when_free(self, callback: Callable[[], object]) -> None:
        """Calls back, on any thread, when something of what is in progress is done: at once, where
        nothing is."""
        in_progress = [future for future in self.begun if not future.done()]
        for future in in_progress:
            future.add_done_callback(lambda _: callback())
        if not in_progress:
            callback()

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
        """Whether it takes little to say which tokens may follow drafted ones."""
        return self.has_begun and not self.is_slow

    def draft(self, guess: Sequence[int], n_max: int, n_forced: int) -> tuple[list[int], int]:
        """Like `grammar_drafts.follow`, for as many tokens as have masks in the time of a slow
        one."""
        n_max = min(n_max, int(SLOW_MASK_S / max(self._mask_cost, 1e-6)))
        drafted: list[int] = []
        n_guessed = 0
        with self._failing_alone():
            drafted, n_guessed = follow(self.matcher, guess, n_max, n_forced)
        ends = (i for i, token_id in enumerate(drafted) if token_id in self._banned_ends)
        n = next(ends, len(drafted))
        return drafted[:n], min(n_guessed, n)

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

    def allows(self, token_id: int, n_drafted: int = 0) -> bool:
        """Whether the token is in the mask of the step behind so many drafted ones."""
        return bool(self.mask(n_drafted)[token_id // 32] >> np.uint32(token_id % 32) & 1)

    def begins_in(self, token_ids: Sequence[int]) -> bool:
        """Whether the output, free until now, begins the grammar if it goes on with these."""
        return self._free is not None and self._free.peek(token_ids) is not None

    def refuses(self, token_id: int) -> bool:
        """Whether the free output can't go on with the token: it begins the grammar, and holds more
        text that the grammar does not allow there. It is banned then, until another one follows.
        """
        with self._failing_alone():
            begun = None if self._free is None else self._free.peek([token_id])
            if begun is not None and self.matcher.validate_tokens(begun) < len(begun):
                self._refused.add(token_id)
                return True
        return False

    def begin_advance(self, token_id: int) -> None:
        """Begins on another thread what `advance` with this token ends."""
        job = partial(self._follow, [token_id])
        self._advanced = self.worker.begin_long(job, self._mask_cost)

    def advance(self, token_id: int) -> None:
        """This token follows, which is no end token."""
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
            self.stop()

    def stop(self) -> None:
        """No token can follow: sets `is_over` or `failure`."""
        if not self.has_begun:
            self.failure = "every token is banned"
        elif self.matcher.is_error():
            self.failure = f"grammar: {error_of(self.matcher)}"
        elif self.matcher.is_accepting():
            self.is_over = True
        else:
            self.failure = "grammar: it allows no token that is not banned otherwise"


class GrammarCompiler:
    """Compiles grammars for the tokens of one model, each once while it is in use."""

    def __init__(
        self,
        tokenizer_json: Callable[[], str] | None,
        vocab_size: int,
        eos_token_ids: frozenset[int],
    ) -> None:
        self._tokenizer_json = tokenizer_json
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._lock = threading.Lock()
        self._tools: tuple[LLTokenizer, MaskWorker, FreeTexts] | None = None
        self._alive: WeakValueDictionary[str, CompiledGrammar] = WeakValueDictionary()
        self._recent: OrderedDict[str, CompiledGrammar] = OrderedDict()

    def is_compiled(self, request: GenerationRequest) -> bool:
        """Whether `open` takes no time for this request."""
        compiled = self._alive.get(request.grammar)
        return compiled is not None and compiled.matcher.done() and not request.produced_ids

    def open(self, request: GenerationRequest, end_token_ids: frozenset[int]) -> GrammarMatcher:
        """The request's grammar, behind what was produced already. Takes up to seconds where it is
        not compiled.

        Raises Refused for a grammar that can't be followed, for a model whose tokenizer can't be
        used, and where the grammars in use leave no memory for another one.
        """
        _check_text(request.grammar)
        try:
            tokenizer, worker, free_texts = self._get_tools()
            free = self._free_text(request, free_texts)
        except ImportError as failure:
            raise _unsupported("this engine has no llguidance") from failure
        except ValueError as failure:
            raise _unsupported(f"it can't hold this model's tokens: {failure}") from failure
        banned_ends = [
            token_id for token_id in tokenizer.eos_tokens if token_id not in end_token_ids
        ]
        grammar = GrammarMatcher(
            self._compiled(request.grammar, tokenizer), worker, banned_ends, free
        )
        if grammar.matcher.is_error():
            raise _refused(error_of(grammar.matcher))
        if request.produced_ids:
            grammar.resume(request.produced_ids)
        if grammar.failure:
            raise _refused(f"the produced ids do not follow it: {grammar.failure}")
        return grammar

    def stop(self) -> None:
        if self._tools is not None:
            self._tools[1].stop()

    def _compiled(self, text: str, tokenizer: "LLTokenizer") -> CompiledGrammar:
        """Whoever asks for a grammar first compiles it for all."""
        with self._lock:
            known = self._alive.get(text)
            compiled = known or self._add(text)
            self._recent[text] = compiled
            self._recent.move_to_end(text)
            if len(self._recent) > MAX_COMPILED:
                self._recent.popitem(last=False)
        if known is None:
            try:
                compiled.matcher.set_result(build_matcher(text, tokenizer))
            except Exception as failure:
                compiled.matcher.set_exception(failure)
                self._forget(text)
            except BaseException as panic:
                log.warning("a grammar was refused: %r", panic)
                compiled.matcher.set_exception(_refused(FAILED))
        return compiled

    def _add(self, text: str) -> CompiledGrammar:
        """Room for one more grammar, taken from those that nobody uses. Raises Refused."""
        while sum(map(len, self._alive)) + len(text) > MAX_ALIVE_BYTES:
            if not self._recent:
                message = "the grammars of the requests in progress leave no room for another one"
                raise Refused.of_kind(ErrorKind.OVERLOADED, message)
            self._recent.popitem(last=False)
        compiled = self._alive[text] = CompiledGrammar()
        return compiled

    def _forget(self, text: str) -> None:
        """Forgets a grammar, so that the next one tries again: it was no fault of the grammar."""
        with self._lock:
            self._alive.pop(text, None)
            self._recent.pop(text, None)

    def _free_text(self, request: GenerationRequest, free_texts: FreeTexts) -> FreeText | None:
        if request.triggers is None:
            return None
        with self._lock:
            return free_texts.open(request.triggers)

    def _get_tools(self) -> tuple["LLTokenizer", MaskWorker, FreeTexts]:
        with self._lock:
            if self._tools is None:
                if self._tokenizer_json is None:
                    raise _unsupported("this engine was given no tokenizer")
                source = Tokenizer.from_str(self._tokenizer_json())
                tokenizer = ll_tokenizer(source, self._vocab_size, self._eos_token_ids)
                self._tools = tokenizer, MaskWorker(tokenizer), FreeTexts(source, tokenizer)
            return self._tools


def _check_text(text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as failure:
        raise _refused(str(failure)) from failure
    if size > MAX_GRAMMAR_BYTES:
        raise _refused(f"it is longer than {MAX_GRAMMAR_BYTES} bytes")


def _refused(message: str) -> Refused:
    return Refused.of_kind(ErrorKind.INVALID_REQUEST, f"grammar: {message}", "grammar")


def _unsupported(message: str) -> Refused:
    return Refused.of_kind(ErrorKind.NOT_SUPPORTED, f"grammar: {message}", "grammar")
