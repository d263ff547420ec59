"""Random and mutated input that native code reads: schemas, grammars, patterns and files."""

import itertools
import json
import random
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as hypothesis_seed

from tests.engine.needs.test_schemas import schemas
from tests.media.files import DOCUMENTS, IMAGES, SOUNDS, image, pdf, sound, wav

DEMO = Path(__file__).resolve().parents[2] / "serve_app" / "demo" / "vision"
CODECS = {"flac": "flac", "ogg": "libopus", "mp3": "libmp3lame", "adts": "aac", "webm": "libopus"}
N_SCHEMAS = 60  # drawn at once
NUMBERS = (
    *(0, -1, 1.0, -0.0, 1e-7, 1e20, -1e30, 1e308, 5e-324, 1 << 53, (1 << 53) + 1),
    *((1 << 63) - 1, -(1 << 63), 1 << 63, (1 << 64) - 1, 10**40, -(10**40), 1 << 31, 4096),
)
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties")
VALUES: tuple[Any, ...] = (*NUMBERS, None, True, "", "\0", "<think>", "\ud7ff", [], {}, "x" * 300)
TYPES = ("string", "integer", "number", "object", "array", "boolean", "null", "any", "", ["null"])
PIECES = (
    *(
        "a",
        "é",
        "\\d",
        "\\w+",
        "[a-z]",
        "[^\\n]",
        ".",
        "\\x41",
        "\\u00e9",
        "^",
        "$",
        "\\b",
        "(?=a)",
    ),
    *("\\p{L}", "(?i)", "[[:alpha:]]", "\\1", "[", "(", "{", "\U0001f642", "[\\s\\S]", "\\/", "-"),
)
COUNTED = ("*", "+", "?", "{2}", "{0,3}", "{3,}", "{1000}", "{0,100000}", "{2,1}", "*?", "++")
LARK = (
    'start: "a" b\nb: /[b-d]+/ | "x" b',
    'start: "{" pair ("," pair)* "}"\npair: STRING ":" value\nvalue: STRING | NUMBER\n'
    'STRING: /"[^"]*"/\nNUMBER: /[0-9]+/',
    'start: e\ne: e "+" e | e "*" e | "(" e ")" | /[0-9]/',
    'start: %json {"type": "object", "properties": {"a": {"type": "integer"}}}',
    'start: %regex {"substring_chars": "a word of it"}',
    'start: %regex {"substring_chunks": ["one ", "two ", "three"]}',
    "start[capture]: x\nx[max_tokens=5]: /.*/",
    "start: <|im_start|> /a/ | A{2,5} | (A B?)~3\nA: /x/ & ~/y/\nB: A | /z/i",
    "start: t[suffix=/;/] \nt[lazy]: /.*b/\n%ignore /\\s+/",
)
GBNF = (
    'root ::= "a" | "b" root',
    'root ::= object\nobject ::= "{" ws ( pair ("," ws pair)* )? "}" ws\n'
    'pair ::= string ":" ws value\nvalue ::= object | string | number\n'
    'string ::= "\\"" [^"\\\\]* "\\"" ws\nnumber ::= "-"? [0-9]+ ws\nws ::= [ \\t\\n]*',
    "root ::= [a-zA-Z_] [a-zA-Z0-9_]{0,31} # a name\n",
    'root ::= ("x" | [^\\x00-\\x1f] | "\\u00e9"){3,7}',
)


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    kind: str
    value: Any  # JSON, text, or bytes of a file

    def saved(self) -> dict[str, Any]:
        if isinstance(self.value, bytes):
            return {"kind": self.kind, "file": b64encode(self.value).decode()}
        return {"kind": self.kind, "value": self.value}

    @classmethod
    def of_saved(cls, saved: dict[str, Any]) -> "Input":
        file = saved.get("file")
        return cls(saved["kind"], saved["value"] if file is None else b64decode(file))


class Inputs:
    """The same seed gives the same inputs."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._rng = random.Random(seed)
        self._schemas = self._drawn()
        self._files = _files()
        self._kinds: dict[str, Callable[[], Any]] = {
            "schema": self._schema,
            "lark": lambda: self._text(LARK),
            "regex": self._regex,
            "gbnf": lambda: self._text(GBNF),
            **{kind: partial(self._file, kind) for kind in self._files},
        }

    def next(self) -> Input:
        names = [*self._kinds, "schema", "schema", "schema"]
        kind = self._rng.choice(names)
        return Input(kind, self._kinds[kind]())

    def _drawn(self) -> Iterator[Any]:
        for number in itertools.count(self._seed):
            yield from _some_schemas(number)

    def _schema(self) -> Any:
        schema = _copy(next(self._schemas))
        for _ in range(self._rng.choice((0, 0, 1, 1, 2, 5))):
            schema = self._mutated(schema)
        return schema if isinstance(schema, dict) else {"allOf": [schema]}

    def _mutated(self, schema: Any) -> Any:
        rng = self._rng
        part = rng.choice([*_parts(schema)] or [{}])
        match rng.randrange(9):
            case 0:
                part[rng.choice(BOUNDS)] = rng.choice(NUMBERS)
                part["type"] = rng.choice(("integer", "number"))
            case 1:
                part[rng.choice(COUNTS)] = rng.choice(NUMBERS)
            case 2:
                part["type"] = rng.choice(TYPES)
            case 3:
                part["pattern"] = self._regex()
                part["type"] = "string"
            case 4:
                part[rng.choice(("const", "default", "enum"))] = rng.choice(VALUES)
            case 5:
                word = rng.choice(("allOf", "anyOf", "oneOf"))
                bounds = {rng.choice(BOUNDS): rng.choice(NUMBERS)}
                return {word: [schema, {"type": "integer", **bounds}]}
            case 6:
                name = rng.choice(("#", "#/$defs/v", "#/a b", "#/ü%", "http://a/b", "#anchor"))
                part["$ref"] = name
            case 7:
                word = rng.choice(("not", "if", "contains", "propertyNames", "items"))
                part[word] = rng.choice((_copy(schema), True, {"type": "string"}))
                return _copy(schema) if word != "not" else {"not": schema}
            case _:
                for _ in range(rng.choice((3, 30, 100))):
                    schema = {"items": schema, "type": "array", "minItems": rng.randrange(3)}
        return schema

    def _regex(self) -> str:
        rng = self._rng
        text = ""
        for _ in range(rng.randint(1, 8)):
            piece = rng.choice(PIECES)
            if rng.random() < 0.3:
                piece = f"({piece}|{rng.choice(PIECES)}{rng.choice(COUNTED)})"
            text += piece + (rng.choice(COUNTED) if rng.random() < 0.4 else "")
        return text

    def _text(self, samples: tuple[str, ...]) -> str:
        text = self._rng.choice(samples)
        for _ in range(self._rng.choice((0, 1, 2, 6))):
            text = _spliced(text, self._rng, self._rng.choice((*samples, *PIECES, *COUNTED, "\n")))
        return text or "x"

    def _file(self, kind: str) -> bytes:
        rng = self._rng
        data = rng.choice(self._files[kind])
        for _ in range(rng.choice((0, 1, 1, 4, 30))):
            other = rng.choice((rng.randbytes(rng.randint(1, 8)), rng.choice(self._files[kind])))
            data = _spliced(data, rng, other)
        return data[: 1 << 20] or b"\0"


def _some_schemas(number: int) -> list[Any]:
    found: list[Any] = []

    @hypothesis_seed(number)
    @settings(
        max_examples=N_SCHEMAS,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(schemas)
    def collect(schema: Any) -> None:
        found.append(schema)

    collect()
    return found


def _spliced(text: Any, rng: random.Random, other: Any) -> Any:
    """The text with a part of it changed: left out, said twice, or of another one."""
    start = rng.randint(0, len(text))
    end = min(len(text), start + int(rng.expovariate(0.1)))
    begin = rng.randint(0, len(other))
    piece = other[begin : begin + int(rng.expovariate(0.1)) + 1]
    return text[:start] + rng.choice((text[:0], text[start:end] * 2, piece)) + text[end:]


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    found = [schema]
    while found:
        part = found.pop()
        if isinstance(part, dict):
            yield part
            found += part.values()
        elif isinstance(part, list):
            found += part


def _copy(schema: Any) -> Any:
    return json.loads(json.dumps(schema))


def _files() -> dict[str, list[bytes]]:
    images = [image((90, 70), form) for form in ("PNG", "JPEG", "GIF", "WEBP")]
    images += [path.read_bytes() for path in sorted(DEMO.glob("example_*.png"))[:4]]
    tone = np.sin(np.arange(8000) * 0.05).astype(np.float32)
    sounds = [wav(4000)]
    for form, codec in CODECS.items():
        rate = 48_000 if codec == "libopus" else 16_000
        sounds += [sound(tone, rate, form, codec), sound(tone, rate, form, codec, is_piped=True)]
    return {
        "image": [*images, *(data for data in IMAGES.values() if len(data) < 1 << 20)],
        "sound": [*sounds, *(data for data in SOUNDS.values() if len(data) < 1 << 20)],
        "document": [pdf(), pdf(3), *DOCUMENTS.values()],
    }


def is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return True
