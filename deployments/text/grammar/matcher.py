"""Builds llguidance's matcher of a grammar, within the limits that hold wherever one is built, and
on a stack that is large enough for it.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

T = TypeVar("T")

MAX_MESSAGE_CHARACTERS = 400  # llguidance quotes whole grammars
MAX_LEXER_STATES = 50_000  # about 2 kB each
# The work of one mask. An object with 500 optional properties needs 6,000 items.
STEP_MAX_ITEMS = 10_000
STEP_LEXER_FUEL = 100_000
PANIC = "panic: "  # of its Rust, with a stack
FAILED = "the compiler of grammars fails on it"
LIMIT_PHRASES = ("Too many items", "; max is ", "too many expressions", "too many states")
# llguidance recurses once for each level of a grammar. It was seen to use up to 900 bytes of stack
# for a byte of grammar.
STACK_BYTES_PER_BYTE = 2048
MIN_STACK_BYTES = 16 << 20
_starting = threading.Lock()


def build_matcher(text: str, tokenizer: "LLTokenizer") -> "LLMatcher":
    """It is in error when the text is no grammar that could be followed."""
    from llguidance import LLMatcher, LLParserLimits

    limits = LLParserLimits(
        step_max_items=STEP_MAX_ITEMS,
        step_lexer_fuel=STEP_LEXER_FUEL,
        max_lexer_states=MAX_LEXER_STATES,
        verbose_errors=False,
    )

    def build() -> LLMatcher:
        matcher = LLMatcher(tokenizer, text, log_level=0, limits=limits)
        if not matcher.is_error():
            matcher.compute_bitmask()  # some are found too complex only then
        return matcher

    return with_deep_stack(text, build)


def error_of(matcher: "LLMatcher") -> str:
    """Why it can't go on."""
    message = matcher.get_error().partition("\n<")[0][:MAX_MESSAGE_CHARACTERS]
    if message.startswith(PANIC):
        return FAILED
    if any(phrase in message for phrase in LIMIT_PHRASES):
        return f"its next token takes more work than is allowed: {message}"
    return message


def with_deep_stack(text: str, work: Callable[[], T]) -> T:
    """Runs `work` on a thread whose stack is large enough for any nesting of the text."""
    return with_stack(max(MIN_STACK_BYTES, len(text) * STACK_BYTES_PER_BYTE), work)


def with_stack(n_bytes: int, work: Callable[[], T]) -> T:
    """Runs `work` on a thread with a stack of this size."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as failure:
            outcome.set_exception(failure)

    thread = threading.Thread(target=run, name="grammar", daemon=True)
    with _starting:
        before = threading.stack_size(n_bytes)
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return outcome.result()
