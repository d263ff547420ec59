"""Reads values as models write them, mostly JSON, and emits them as JSON while they are read.

JSON is emitted as it was written. Other notations are corrected: Python's constants, single quotes,
control characters and unknown escapes in strings, commas before a closing bracket.
"""

import json
import re
import sys
from collections.abc import Callable

from deployments.text.dialects.parsing.incremental import (
    Incremental,
    NotACall,
    Sink,
    TextBuffer,
    mark_matcher,
)

MAX_DEPTH = 64
MAX_WORD = 128  # characters of a number, word or bare key
JSON_WORD = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
LONG_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][-+]?\d*)?", re.ASCII)
NUMBER_PART = re.compile(r"[-+.eE0-9]+")
WORD = re.compile(r"[-+.\w]+", re.ASCII)
BEGUN_WORD = re.compile(r"t|tr|tru|f|fa|fal|fals|n|nu|nul|-|" + JSON_WORD.pattern, re.ASCII)
BARE_KEY = re.compile(r"[-.$\w]+")
PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
HEX_LENGTHS = {"x": 2, "u": 4, "U": 8}
HEX = re.compile(r"[0-9a-fA-F]+")
SPACE = re.compile(r"[ \t\r\n]+")
QUOTES = ('"', "'")
STRING_PARTS = {quote: re.compile(rf"[^{quote}\\\x00-\x1f]+") for quote in QUOTES}


def to_json(value: object) -> str:
    """JSON that UTF-8 can encode: lone surrogates stay escaped. Raises ValueError for NaN."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False)
    return text


def literal_json(text: str) -> str | None:
    """The text as JSON, if it is one value; else None."""
    buffer, parts = TextBuffer(), list[str]()
    buffer.feed(text.strip() + "\n")
    buffer.ended = True
    try:
        for _ in LiteralReader(buffer, parts.append).read():
            pass
        for _ in buffer.skip_space():
            pass
    except NotACall:
        return None
    return "".join(parts) if buffer.exhausted else None


def inside_string(text: str) -> str:
    """The text as it is written between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class LiteralReader:
    """Reads values from a buffer. `string_mark` opens and closes strings without escapes. With
    `bare_keys` the keys of objects may have no quotes.
    """

    def __init__(
        self, buffer: TextBuffer, sink: Sink, string_mark: str = "", bare_keys: bool = False
    ) -> None:
        self._buffer = buffer
        self._sink = sink
        self._string_mark = string_mark
        self._bare_keys = bare_keys

    def read(self, depth: int = MAX_DEPTH) -> Incremental[None]:
        match (yield from self._buffer.peek()):
            case _ if depth == 0:
                raise NotACall
            case "{":
                yield from self._bracketed("{", "}", lambda: self._member(depth))
            case "[":
                yield from self._bracketed("[", "]", lambda: self.read(depth - 1))
            case _ if not (yield from self._string()):
                yield from self._word()

    def _bracketed(
        self, left: str, right: str, item: Callable[[], Incremental[None]]
    ) -> Incremental[None]:
        buffer, sink = self._buffer, self._sink
        sink((yield from buffer.expect(left)))
        yield from buffer.read_run(SPACE, sink)
        comma: list[str] = []  # emitted when another item follows
        while not (yield from buffer.try_read(right)):
            for text in comma:
                sink(text)
            yield from item()
            yield from buffer.read_run(SPACE, sink)
            comma = [(yield from buffer.try_read(","))]
            yield from buffer.read_run(SPACE, comma.append)
            if not comma[0]:
                yield from buffer.expect(right)
                break
        sink(right)

    def _member(self, depth: int) -> Incremental[None]:
        if not (yield from self._string()):
            yield from self._key()
        yield from self._buffer.read_run(SPACE, self._sink)
        self._sink((yield from self._buffer.expect(":")))
        yield from self._buffer.read_run(SPACE, self._sink)
        yield from self.read(depth - 1)

    def _key(self) -> Incremental[None]:
        key = yield from self._buffer.look_ahead(BARE_KEY, MAX_WORD)
        if not key or not self._bare_keys or self._buffer.hit_end:
            raise NotACall
        self._sink(to_json(self._buffer.take(key)))

    def _word(self) -> Incremental[None]:
        word = yield from self._buffer.look_ahead(WORD, MAX_WORD)
        if self._buffer.hit_end:
            self._sink(word if BEGUN_WORD.fullmatch(word) else "")
            raise NotACall
        read = word if _is_long_number(word) else _word_json(word)
        if not read:
            raise NotACall
        self._buffer.take(word)
        self._sink(read)
        if _is_long_number(word):
            yield from self._buffer.read_run(NUMBER_PART, self._sink)

    def _string(self) -> Incremental[bool]:
        """Whether a string came next."""
        quote = yield from self._buffer.try_read(*QUOTES, *filter(None, [self._string_mark]))
        if quote in QUOTES:
            self._sink('"')
            yield from _quoted(self._buffer, self._sink, quote)
        elif quote:
            self._sink('"')
            yield from self._unescaped(quote)
        return bool(quote)

    def _unescaped(self, mark: str) -> Incremental[None]:
        end, newlines = yield from self._buffer.read_until(
            mark_matcher(mark), lambda text: self._sink(inside_string(text)), cut=True
        )
        self._sink(inside_string(newlines))
        if not end:
            raise NotACall
        self._sink('"')


def read_string(buffer: TextBuffer, limit: int) -> Incremental[str]:
    """A decoded string of at most `limit` characters as it is written. Raises NotACall."""
    parts: list[str] = []
    quote = yield from buffer.expect(*QUOTES)
    yield from _quoted(buffer, _bounded(parts, limit), quote)
    return str(json.loads('"' + "".join(parts)))


def _quoted(buffer: TextBuffer, sink: Sink, quote: str) -> Incremental[None]:
    """The rest of a string, through its closing quote."""
    other = '\\"' if quote == "'" else "'"
    while True:
        yield from buffer.read_run(
            STRING_PARTS[quote],
            lambda text: sink(text.replace('"', other) if quote == "'" else text),
        )
        match (yield from buffer.read_character()):
            case "":
                raise NotACall
            case "\\":
                sink((yield from _escape(buffer)))
            case character if character == quote:
                return sink('"')
            case control:
                sink(inside_string(control))


def _escape(buffer: TextBuffer) -> Incremental[str]:
    """The escape in JSON. One that JSON does not know is plain text."""
    escaped = yield from buffer.read_character()
    if not escaped:
        raise NotACall
    if escaped in HEX_LENGTHS:
        length = HEX_LENGTHS[escaped]
        digits = yield from buffer.look_ahead(HEX, length)
        if buffer.hit_end:
            raise NotACall
        if len(digits) == length and int(digits, 16) <= sys.maxunicode:
            return _code(buffer.take(digits))
    elif escaped in '"\\/bfnrt':
        return "\\" + escaped
    elif escaped == "'":
        return escaped
    return "\\\\" + inside_string(escaped)


def _code(digits: str) -> str:
    if len(digits) <= 4:
        return "\\u" + digits.rjust(4, "0")
    return json.dumps(chr(int(digits, 16)))[1:-1]


def _bounded(parts: list[str], limit: int) -> Sink:
    left = limit

    def sink(text: str) -> None:
        nonlocal left
        left -= len(text)
        if left < 0:
            raise NotACall
        parts.append(text)

    return sink


def _is_long_number(word: str) -> bool:
    """Whether it may go on behind what is read at once."""
    return len(word) == MAX_WORD and LONG_NUMBER.fullmatch(word) is not None


def _word_json(word: str) -> str:
    """The word as JSON, or "" if it is neither a number nor a constant."""
    if JSON_WORD.fullmatch(word):
        return word
    if word in PYTHON_WORDS:
        return PYTHON_WORDS[word]
    for number in (int, float):
        try:
            return to_json(number(word))
        except ValueError:
            continue
    return ""
