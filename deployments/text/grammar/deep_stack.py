"""Runs what recurses once for each level of a text on a stack that is large enough for it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")

# llguidance recurses once for each level of a grammar. It was seen to use up to 900 bytes of stack
# for a byte of grammar.
STACK_BYTES_PER_BYTE = 2048
MIN_STACK_BYTES = 16 << 20
_starting = threading.Lock()


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
