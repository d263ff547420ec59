"""The bytes that each token of a model stands for in a text, exactly as its tokenizer decodes."""

import json
import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from tokenizers import Tokenizer

Step = Callable[[str], str | bytes]
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class Alphabet:
    """The decoder section of a tokenizer.json, as a function of one token.

    `starts_with_space`: a decoded text begins with a space that is not a part of the text.
    """

    def __init__(self, decoder: Any) -> None:
        parts = _flat(decoder)
        self._steps = [step for part in parts if (step := _step(part)) is not None]
        self.starts_with_space = any(_adds_space(part) for part in parts)

    def bytes_of(self, token: str) -> bytes:
        text: str | bytes = token
        for step in self._steps:
            if isinstance(text, bytes):
                break
            text = step(text)
        return text if isinstance(text, bytes) else text.encode()


def _flat(decoder: Any) -> list[Any]:
    if decoder is None:
        return [{"type": "Spaced"}]
    if decoder["type"] == "Sequence":
        return [part for inner in decoder["decoders"] for part in _flat(inner)]
    return [decoder]


def _step(part: Any) -> Step | None:
    match part["type"]:
        case "ByteLevel":
            return _byte_level
        case "ByteFallback":
            return _byte_fallback
        case "Metaspace":
            return partial(_replace, re.escape(part["replacement"]), " ")
        case "Replace":
            return partial(_replace, _pattern(part["pattern"]), part["content"])
        case "Spaced":  # no decoder at all: words, joined by spaces
            return partial(str.__add__, " ")
        case "WordPiece":  # that no space goes before a comma is not undone
            return partial(_word_piece, part["prefix"])
        case "Fuse" | "Strip":
            return None
    raise ValueError(f"tokenizer decoder {part['type']} is not supported")


def _adds_space(part: Any) -> bool:
    match part["type"]:
        case "Strip":
            return bool(part["content"] == " " and part["start"])
        case "Metaspace":
            return bool(part.get("prepend_scheme", "always") != "never")
    return bool(part["type"] in ("Spaced", "WordPiece"))


def _pattern(pattern: Any) -> str:
    return str(pattern["Regex"]) if "Regex" in pattern else re.escape(pattern["String"])


def _replace(pattern: str, content: str, token: str) -> str:
    return re.sub(pattern, lambda _: content, token)


def _word_piece(prefix: str, token: str) -> str:
    """A word's first piece has no prefix."""
    return token.removeprefix(prefix) if token.startswith(prefix) else " " + token


def _byte_level(token: str) -> bytes:
    alphabet = byte_alphabet()
    try:
        return bytes(alphabet[character] for character in token)
    except KeyError:  # an added token is plain text
        return token.encode()


def _byte_fallback(token: str) -> str | bytes:
    match = BYTE_TOKEN.fullmatch(token)
    return bytes.fromhex(match[1]) if match else token


@cache
def byte_alphabet() -> dict[str, int]:
    """GPT-2's character for each byte: its own if it is visible, else one from U+0100 on."""
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(visible)]
    table = {chr(byte): byte for byte in visible}
    return table | {chr(0x100 + index): byte for index, byte in enumerate(hidden)}


class TokenTexts:
    """`specials` are the ids of special tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._alphabet = Alphabet(_decoder(tokenizer))
        added = tokenizer.get_added_tokens_decoder()
        self.specials = frozenset(token_id for token_id, token in added.items() if token.special)
        self._bytes: dict[int, bytes] = {}

    @property
    def starts_with_space(self) -> bool:
        """Whether the first token of a text carries a space that the text does not have."""
        return self._alphabet.starts_with_space

    def token_bytes(self, token_id: int) -> bytes:
        """The exact bytes of a token; none for an id outside the vocabulary."""
        known = self._bytes.get(token_id)
        if known is None:
            token = self._tokenizer.id_to_token(token_id)
            known = b"" if token is None else self._alphabet.bytes_of(token)
            self._bytes[token_id] = known
        return known

    def text_bytes(self, token_id: int, skip_special_tokens: bool) -> bytes:
        if skip_special_tokens and token_id in self.specials:
            return b""
        return self.token_bytes(token_id)


def _decoder(tokenizer: Tokenizer) -> object:
    # Its pickled state is its section of tokenizer.json, so the 10 MB file is not parsed again.
    return None if tokenizer.decoder is None else json.loads(tokenizer.decoder.__getstate__())
