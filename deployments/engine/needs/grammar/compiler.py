"""Compiles grammars for the tokens of one model. What is kept of them is bounded."""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from tokenizers import Tokenizer

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.requests import GenerationRequest
from deployments.engine.needs.grammar.free_text import FreeText, FreeTexts
from deployments.engine.needs.grammar.mask_worker import MaskWorker
from deployments.engine.needs.grammar.matcher import CompiledGrammar, GrammarMatcher
from deployments.text.grammar.grammar import MAX_GRAMMAR_BYTES
from deployments.text.grammar.ll_tokenizer import ll_tokenizer
from deployments.text.grammar.matcher import FAILED, build_matcher, error_of

if TYPE_CHECKING:
    from llguidance import LLTokenizer

log = logging.getLogger(__name__)

MAX_COMPILED = 64  # kept after their last use
MAX_ALIVE_BYTES = 4 << 20  # of all texts; a compiled grammar takes up to 210 bytes for each


class GrammarCompiler:
    """Compiles each grammar once while it is in use."""

    def __init__(
        self,
        tokenizer_json: Callable[[], str] | None,
        vocab_size: int,
        eos_token_ids: frozenset[int],
        wake: Callable[[], None],
    ) -> None:
        """`wake` is as of `MaskWorker`. All else is of the model; without a tokenizer it has no
        grammars."""
        self._tokenizer_json = tokenizer_json
        self._vocab_size = vocab_size
        self._eos_token_ids = eos_token_ids
        self._wake = wake
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
        compiled = self._compiled(request.grammar, tokenizer)
        grammar = GrammarMatcher(compiled, worker, banned_ends, end_token_ids, free)
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
                self._tools = (
                    tokenizer,
                    MaskWorker(tokenizer, self._wake),
                    FreeTexts(source, tokenizer),
                )
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
