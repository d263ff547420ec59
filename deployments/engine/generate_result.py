"""The result of a generation for callers that use threads: it grows while they wait for it."""

import threading
from collections.abc import Callable, Generator
from contextlib import closing

Piece = tuple[int, str]  # the number of a prompt, and text that follows it


class GenerateResult:
    """The texts of several prompts, filled in by a thread of its own. Any thread may wait."""

    def __init__(
        self,
        n_prompts: int,
        pieces: Generator[Piece, None, None],
        cb: Callable[[str], object] | None = None,
    ) -> None:
        """Reads `pieces` to their end. `cb(token)` is called for the text of each, on the thread
        that reads: it should be quick."""
        self._texts = [""] * n_prompts
        self._cb = cb
        self._error: BaseException | None = None
        self._is_complete = False
        self._changed = threading.Condition()
        self._has_news = threading.Event()
        self._unread: list[Piece] = []
        threading.Thread(target=self._read, args=(pieces,), name="generate", daemon=True).start()

    def wait(self, timeout: float | None = None) -> list[Piece]:
        """Waits for text, up to `timeout` seconds; returns all that no call has returned yet. An
        empty list means that the timeout has passed, or that all texts are complete.

        Raises what the generation raised, once all text before it was returned.
        """
        self._has_news.wait(timeout)
        with self._changed:
            unread, self._unread = self._unread, []
            if not self._is_complete:
                self._has_news.clear()
            if self._error is not None and not unread:
                raise self._error
            return unread

    def wait_completion(self, timeout: float | None = None) -> list[str]:
        """Waits until all texts are complete, and returns them in the order of the prompts.

        Raises TimeoutError after `timeout` seconds, and what the generation raised: Refused for a
        prompt that can't be served.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._is_complete, timeout):
                raise TimeoutError(f"the generation has not ended after {timeout} s")
            if self._error is not None:
                raise self._error
            return [*self._texts]

    def _read(self, pieces: Generator[Piece, None, None]) -> None:
        try:
            with closing(pieces):
                for index, text in pieces:
                    self._append(index, text)
                    if self._cb is not None:
                        self._cb(text)
        except BaseException as error:  # it belongs to those who wait
            self._error = error
        finally:
            with self._changed:
                self._is_complete = True
                self._has_news.set()
                self._changed.notify_all()

    def _append(self, index: int, text: str) -> None:
        with self._changed:
            self._texts[index] += text
            self._unread.append((index, text))
            self._has_news.set()
