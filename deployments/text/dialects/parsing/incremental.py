"""Text that comes in pieces, read as if it were whole: what is read never depends on the cuts."""

import re
from collections.abc import Callable, Generator, Iterable
from functools import cache
from typing import TypeVar

T = TypeVar("T")
Incremental = Generator[None, None, T]  # yields to wait for more text
Sink = Callable[[str], None]

SPACE = re.compile(r"\s+")
WINDOW = 1024  # characters looked at in one step, so that who looks no further pays no more


class NotACall(Exception):
    """What stands here is no call, or not the rest of one."""


class MarkMatcher:
    """Texts to look for; of those that begin at one place, the longest. None begins with \\n."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted(texts, key=len, reverse=True)
        self._whole = re.compile("|".join([r"\n+", *map(re.escape, self._texts)]))
        self._begun = re.compile("|".join([r"\n+", *map(_begun, self._texts)]))

    def search(self, text: str, at: int, end: int, ended: bool) -> re.Match[str] | None:
        """A run of newlines, a mark, or unless the text has ended the beginning of one at `end`."""
        return (self._whole if ended else self._begun).search(text, at, end)

    def match(self, text: str, at: int, ended: bool) -> re.Match[str] | None:
        return (self._whole if ended else self._begun).match(text, at)

    def may_grow(self, found: str) -> bool:
        """Whether it is the beginning of a mark, and not the whole of it."""
        return any(len(text) > len(found) and text.startswith(found) for text in self._texts)

    def begun_at(self, text: str, at: int) -> bool:
        """Whether the text ends within what may be a mark."""
        return len(text) - at < len(self._texts[0]) and self.may_grow(text[at:])


@cache
def mark_matcher(*texts: str) -> MarkMatcher:
    return MarkMatcher(texts)


def discard(text: str) -> None:
    """The sink of what no one needs."""


class TextBuffer:
    """Holds no more than what could begin a mark, and while it keeps, what was read since."""

    def __init__(self) -> None:
        self._text, self._at = "", 0
        self._start: int | None = None  # where keeping began
        self._kept: list[str] = []  # of earlier pieces
        self.ended = False
        self.hit_end = False  # something was looked for where the text has ended

    def feed(self, text: str) -> None:
        if self._start is not None:
            self._kept.append(self._text[self._start : self._at])
            self._start = 0
        self._text, self._at = self._text[self._at :] + text, 0

    @property
    def exhausted(self) -> bool:
        return self.ended and self._at == len(self._text)

    def checkpoint(self) -> None:
        """From here on the text can be read again."""
        self.commit()
        self._start = self._at

    def commit(self) -> None:
        self._start = None
        self._kept.clear()

    def rollback(self) -> bool:
        """To where keeping began; when it has not, nowhere, and the answer is no."""
        if self._start is None:
            return False
        if self._kept:
            self._text = "".join(self._kept) + self._text
        self._at = self._start
        self.hit_end = False
        self.commit()
        return True

    def has_more(self) -> Incremental[bool]:
        while self._at == len(self._text):
            if self.ended:
                self.hit_end = True
                return False
            yield
        return True

    def peek(self) -> Incremental[str]:
        """The next character, "" at the end."""
        return self._text[self._at] if (yield from self.has_more()) else ""

    def read_character(self) -> Incremental[str]:
        return self._take(1) if (yield from self.has_more()) else ""

    def read_run(self, pattern: re.Pattern[str], sink: Sink = discard) -> Incremental[None]:
        """Reads for as long as characters match; `pattern` is a repeated class of characters."""
        while (yield from self.has_more()):
            found = pattern.match(self._text, self._at, self._at + WINDOW)
            if found is None:
                return
            sink(self._take(len(found.group())))

    def skip_space(self) -> Incremental[None]:
        yield from self.read_run(SPACE)

    def read_rest(self, sink: Sink) -> Incremental[None]:
        while (yield from self.has_more()):
            sink(self._take(len(self._text) - self._at))

    def look_ahead(self, pattern: re.Pattern[str], limit: int) -> Incremental[str]:
        """What `run` would read, at most `limit` of it, left unread."""
        while True:
            found = pattern.match(self._text, self._at, self._at + limit)
            run = "" if found is None else found.group()
            reaches_the_end = self._at + len(run) == len(self._text)
            if len(run) == limit or not reaches_the_end:
                return run
            if self.ended:
                self.hit_end = True
                return run
            yield

    def take(self, text: str) -> str:
        """Reads what is known to stand here."""
        assert self._text.startswith(text, self._at)
        return self._take(len(text))

    def try_read(self, *texts: str) -> Incremental[str]:
        """Reads the mark that stands here; when none does, "" and nothing is read."""
        matcher = mark_matcher(*texts)
        while (yield from self.has_more()):
            found = matcher.match(self._text, self._at, self.ended)
            if found is None or found.group()[0] == "\n":
                self.hit_end |= self.ended and matcher.begun_at(self._text, self._at)
                return ""
            if not self._must_wait(found, matcher):
                return self._take(len(found.group()))
            yield
        return ""

    def expect(self, *texts: str) -> Incremental[str]:
        found = yield from self.try_read(*texts)
        if not found:
            raise NotACall
        return found

    def expect_close(self, *texts: str) -> Incremental[str]:
        """Expects one of the marks behind whitespace; "" when the text ends here or within it."""
        yield from self.skip_space()
        found = yield from self.try_read(*texts)
        if not found:
            if not self.hit_end:
                raise NotACall
            yield from self.read_rest(discard)
        return found

    def read_up_to(self, limit: int, *texts: str) -> Incremental[tuple[str, str]]:
        """What stands before one of the marks, and the mark."""
        read = ""

        def sink(text: str) -> None:
            nonlocal read
            read += text
            if len(read) > limit:
                raise NotACall

        found, newlines = yield from self.read_until(mark_matcher(*texts), sink)
        if not found:
            raise NotACall
        return read + newlines, found

    def read_until(
        self, matcher: MarkMatcher, sink: Sink, cut: bool = False
    ) -> Incremental[tuple[str, str]]:
        """Reads through the first mark, or to the end; gives the mark ("" at the end).

        The text before it goes to the sink at once, but for the newlines right before the mark,
        which are given back with it. With `cut` a mark that the end cuts short is not text.
        """
        newlines = ""
        while (yield from self.has_more()):
            end = min(len(self._text), self._at + WINDOW)
            ended = self.ended and end == len(self._text)
            found = matcher.search(self._text, self._at, end, ended and not cut)
            plain = (end if found is None else found.start()) - self._at
            if plain:
                sink(newlines + self._take(plain))
                newlines = ""
            if found is None or (plain and found.end() == end):
                continue
            if found.group()[0] == "\n":
                newlines += self._take(len(found.group()))
            elif self._must_wait(found, matcher):
                yield
            elif matcher.may_grow(found.group()) and self.ended and cut:
                self._take(len(found.group()))
            else:
                return self._take(len(found.group())), newlines
        return "", newlines

    def _must_wait(self, found: re.Match[str], matcher: MarkMatcher) -> bool:
        at_end = found.end() == len(self._text)
        return at_end and not self.ended and matcher.may_grow(found.group())

    def _take(self, count: int) -> str:
        taken = self._text[self._at : self._at + count]
        self._at += count
        return taken


def _begun(mark: str) -> str:
    """A pattern of the mark, and at the end of the text of each of its beginnings."""
    first, *rest = map(re.escape, mark)
    pattern = ""
    for character in reversed(rest):
        pattern = rf"(?:\Z|{character}{pattern})"
    return first + pattern
