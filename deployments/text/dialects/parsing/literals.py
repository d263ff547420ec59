"""Values as models write them, JSON above all, given out as JSON while they are read.

JSON is given out as it was written. What models write instead is put right: Python's words,
single quotes, control characters and unknown escapes in strings, commas before a closing bracket.
"""

import json
import re
import sys
from collections.abc import Callable

from deployments.text.dialects.parsing.incremental import NoCall, Sink, Source, Steps, marks

MAX_DEPTH = 64
MAX_WORD = 128  # characters of a number, word or bare key
JSON_WORD = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?", re.ASCII)
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
    """JSON that any encoder of text takes: lone surrogates stay escaped. NaN is a ValueError."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False)
    return text


def literal_json(text: str) -> str | None:
    """The one value that a text is, as JSON."""
    source, parts = Source(), list[str]()
    source.feed(text.strip() + "\n")
    source.ended = True
    try:
        for _ in Literals(source, parts.append).value():
            pass
        for _ in source.space():
            pass
    except NoCall:
        return None
    return "".join(parts) if source.exhausted else None


def inside_string(text: str) -> str:
    """Text as it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


class Literals:
    """Reads values from a source. `marked` is a text that opens and closes strings of its own, in
    which nothing is escaped; with `bare` the keys of objects may stand without quotes.
    """

    def __init__(self, source: Source, sink: Sink, marked: str = "", bare: bool = False) -> None:
        self._source = source
        self._sink = sink
        self._marked = marked
        self._bare = bare

    def value(self, depth: int = MAX_DEPTH) -> Steps[None]:
        match (yield from self._source.peek()):
            case _ if depth == 0:
                raise NoCall
            case "{":
                yield from self._bracketed("{", "}", lambda: self._member(depth))
            case "[":
                yield from self._bracketed("[", "]", lambda: self.value(depth - 1))
            case _ if not (yield from self._string()):
                yield from self._word()

    def _bracketed(self, left: str, right: str, item: Callable[[], Steps[None]]) -> Steps[None]:
        source, sink = self._source, self._sink
        sink((yield from source.expect(left)))
        yield from source.run(SPACE, sink)
        comma: list[str] = []  # given out when another item follows
        while not (yield from source.one_of(right)):
            for text in comma:
                sink(text)
            yield from item()
            yield from source.run(SPACE, sink)
            comma = [(yield from source.one_of(","))]
            yield from source.run(SPACE, comma.append)
            if not comma[0]:
                yield from source.expect(right)
                break
        sink(right)

    def _member(self, depth: int) -> Steps[None]:
        if not (yield from self._string()):
            yield from self._key()
        yield from self._source.run(SPACE, self._sink)
        self._sink((yield from self._source.expect(":")))
        yield from self._source.run(SPACE, self._sink)
        yield from self.value(depth - 1)

    def _key(self) -> Steps[None]:
        key = yield from self._source.ahead(BARE_KEY, MAX_WORD)
        if not key or not self._bare or self._source.short:
            raise NoCall
        self._sink(to_json(self._source.take(key)))

    def _word(self) -> Steps[None]:
        word = yield from self._source.ahead(WORD, MAX_WORD)
        if self._source.short:
            self._sink(word if BEGUN_WORD.fullmatch(word) else "")
            raise NoCall
        read = _word_json(word)
        if not read:
            raise NoCall
        self._source.take(word)
        self._sink(read)

    def _string(self) -> Steps[bool]:
        """Whether a string stood here."""
        quote = yield from self._source.one_of(*QUOTES, *filter(None, [self._marked]))
        if quote in QUOTES:
            self._sink('"')
            yield from _quoted(self._source, self._sink, quote)
        elif quote:
            self._sink('"')
            yield from self._unescaped(quote)
        return bool(quote)

    def _unescaped(self, mark: str) -> Steps[None]:
        end, newlines = yield from self._source.until(
            marks(mark), lambda text: self._sink(inside_string(text)), cut=True
        )
        self._sink(inside_string(newlines))
        if not end:
            raise NoCall
        self._sink('"')


def read_string(source: Source, limit: int) -> Steps[str]:
    """A string, decoded, of at most `limit` characters as it is written."""
    parts: list[str] = []
    quote = yield from source.expect(*QUOTES)
    yield from _quoted(source, _bounded(parts, limit), quote)
    return str(json.loads('"' + "".join(parts)))


def _quoted(source: Source, sink: Sink, quote: str) -> Steps[None]:
    """The rest of a string, through its closing quote."""
    other = '\\"' if quote == "'" else "'"
    while True:
        yield from source.run(
            STRING_PARTS[quote],
            lambda text: sink(text.replace('"', other) if quote == "'" else text),
        )
        match (yield from source.read()):
            case "":
                raise NoCall
            case "\\":
                sink((yield from _escape(source)))
            case character if character == quote:
                return sink('"')
            case control:
                sink(inside_string(control))


def _escape(source: Source) -> Steps[str]:
    """What stands for an escape in JSON; one that JSON does not know is the text it looks like."""
    escaped = yield from source.read()
    if not escaped:
        raise NoCall
    if escaped in HEX_LENGTHS:
        length = HEX_LENGTHS[escaped]
        digits = yield from source.ahead(HEX, length)
        if source.short:
            raise NoCall
        if len(digits) == length and int(digits, 16) <= sys.maxunicode:
            return _code(source.take(digits))
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
            raise NoCall
        parts.append(text)

    return sink


def _word_json(word: str) -> str:
    """The word as JSON, "" when it is no number and no constant."""
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
