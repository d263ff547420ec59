"""Reads text that comes in pieces as if it were whole: the result never depends on the cuts."""

import re
from collections.abc import Callable, Generator, Iterable
from functools import cache
from typing import TypeVar

T = TypeVar("T")
Incremental = Generator[None, None, T]  # yields to wait for more text
Sink = Callable[[str], None]

SPACE = re.compile(r"\s+")
WINDOW = 1024  # characters searched in one step, which bounds its cost


class NotACall(Exception):
    """The text is not a call, or not the rest of one."""


class MarkMatcher:
    """Finds texts; of those that begin at one index, the longest. None begins with \\n."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted(texts, key=len, reverse=True)
        self._whole = re.compile("|".join([r"\n+", *map(re.escape, self._texts)]))
        self._begun = re.compile("|".join([r"\n+", *map(_begun, self._texts)]))

    def search(self, text: str, at: int, end: int, ended: bool) -> re.Match[str] | None:
        """Newlines, or a mark; unless the text has ended, also the start of a mark at `end`."""
        return (self._whole if ended else self._begun).search(text, at, end)

    def match(self, text: str, at: int, ended: bool) -> re.Match[str] | None:
        return (self._whole if ended else self._begun).match(text, at)

    def may_grow(self, found: str) -> bool:
        """Whether it is the beginning of a longer mark."""
        return any(len(text) > len(found) and text.startswith(found) for text in self._texts)

    def begun_at(self, text: str, at: int) -> bool:
        """Whether the text ends in the beginning of a mark."""
        return len(text) - at < len(self._texts[0]) and self.may_grow(text[at:])


@cache
def mark_matcher(*texts: str) -> MarkMatcher:
    return MarkMatcher(texts)


def discard(text: str) -> None:
    """A sink that drops the text."""


class TextBuffer:
    """Holds text that may begin a mark and, after a checkpoint, the text that was read since."""

    def __init__(self) -> None:
        self._text, self._at = "", 0
        self._start: int | None = None  # of the checkpoint
        self._kept: list[str] = []  # since the checkpoint, of earlier pieces
        self.ended = False
        self.is_cut = False  # it ended by a limit, and would have gone on
        self.hit_end = False  # a read needed text behind the end

    def feed(self, text: str) -> None:
        if self._start is not None:
            self._kept.append(self._text[self._start : self._at])
            self._start = 0
        self._text, self._at = self._text[self._at :] + text, 0

    @property
    def exhausted(self) -> bool:
        return self.ended and self._at == len(self._text)

    def checkpoint(self) -> None:
        """Keeps the text from here on, so that `rollback` can return here."""
        self.commit()
        self._start = self._at

    def commit(self) -> None:
        self._start = None
        self._kept.clear()

    def rollback(self) -> bool:
        """Returns to the checkpoint. False if there is none."""
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
        """The next character, or "" at the end."""
        return self._text[self._at] if (yield from self.has_more()) else ""

    def read_character(self) -> Incremental[str]:
        return self._take(1) if (yield from self.has_more()) else ""

    def read_run(self, pattern: re.Pattern[str], sink: Sink = discard) -> Incremental[None]:
        """Reads while characters match. `pattern` is a repeated character class."""
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
        """Returns what `read_run` would read, at most `limit` characters, without reading it."""
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
        """Reads `text`, which must come next."""
        assert self._text.startswith(text, self._at)
        return self._take(len(text))

    def try_read(self, *texts: str) -> Incremental[str]:
        """Reads the mark that comes next. If none does, it reads nothing and returns ""."""
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
        """Expects whitespace and one of the marks. "" if the text ends here or within the mark."""
        yield from self.skip_space()
        found = yield from self.try_read(*texts)
        if not found:
            if not self.hit_end:
                raise NotACall
            yield from self.read_rest(discard)
        return found

    def read_up_to(self, limit: int, *texts: str) -> Incremental[tuple[str, str]]:
        """The text before a mark, and the mark. Raises NotACall after `limit` characters."""
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
        """Reads through the first mark, and returns the mark; to the end if there is none, and
        returns "".

        The text before the mark goes to the sink at once, except the newlines right before it. They
        are returned, too. With `cut`, or of a text that is cut itself, a mark that the end cuts
        short is dropped.
        """
        newlines = ""
        while (yield from self.has_more()):
            end = min(len(self._text), self._at + WINDOW)
            ended, drops = self.ended and end == len(self._text), cut or self.is_cut
            found = matcher.search(self._text, self._at, end, ended and not drops)
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
            elif matcher.may_grow(found.group()) and self.ended and drops:
                self._take(len(found.group()))
                newlines = newlines if cut else ""
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
    """A pattern of the mark, and of each beginning of it at the end of the text."""
    first, *rest = map(re.escape, mark)
    pattern = ""
    for character in reversed(rest):
        pattern = rf"(?:\Z|{character}{pattern})"
    return first + pattern
