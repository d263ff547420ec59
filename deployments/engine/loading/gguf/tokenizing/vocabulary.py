"""Reads the metadata that all kinds of tokenizers share: the tokens, and typed values by key.

The file is a stranger's, so whatever is broken raises a GGUFError that names the key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.header import Value

Metadata: TypeAlias = Mapping[str, Value]

PREFIX = "tokenizer.ggml."
TOKENS, TYPES, SCORES = f"{PREFIX}tokens", f"{PREFIX}token_type", f"{PREFIX}scores"
SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"  # a space within a token that is plain text
MAX_QUOTED = 80  # characters of a token that an error quotes


class TokenType(IntEnum):
    """Source: `llama_token_type` in llama.cpp's llama.h."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a file.

    ids: of the tokens, each of which is there once.
    types: one of `TokenType` for each token.
    scores: float64, for each token; None where the file has none.
    """

    tokens: Sequence[str]
    ids: Mapping[str, int]
    types: Sequence[int]
    scores: NDArray[np.float64] | None

    def of_type(self, *types: TokenType) -> list[int]:
        """The ids of the tokens that have one of these types, in ascending order."""
        return [token_id for token_id, found in enumerate(self.types) if found in types]


def broken(key: str, message: str) -> GGUFError:
    return GGUFError(f"key {key!r}: {message}")


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """Raises GGUFError for lists that are missing, broken, or of different lengths."""
    listed = text_list(metadata, TOKENS)
    if not listed:
        raise broken(TOKENS, "it is empty")
    # Some files have empty tokens, which no text contains.
    tokens = [token or f"[EMPTY_{token_id}]" for token_id, token in enumerate(listed)]
    ids: dict[str, int] = {}
    for token_id, token in enumerate(tokens):
        if ids.setdefault(token, token_id) != token_id:
            raise broken(TOKENS, f"{quoted(token)} is there twice, as {ids[token]} and {token_id}")
    types = [int(TokenType.NORMAL)] * len(tokens)
    if TYPES in metadata:
        array = _numbers(metadata, TYPES, len(tokens))
        types = array.tolist()
        if array.dtype.kind == "f" or not set(types) <= set(TokenType):
            raise broken(TYPES, "it has an entry that is no type of a token")
    scores = None
    if SCORES in metadata:
        scores = _numbers(metadata, SCORES, len(tokens)).astype(np.float64)
        if not np.isfinite(scores).all():
            raise broken(SCORES, "it has an entry that is no finite number")
    return Vocabulary(tokens, ids, types, scores)


def text_list(metadata: Metadata, key: str) -> list[str]:
    found = metadata.get(key)
    if found is None:
        raise broken(key, "it is missing")
    if not isinstance(found, list):
        raise broken(key, "it is no list of texts")
    texts = [entry for entry in found if isinstance(entry, str)]
    if len(texts) != len(found):
        raise broken(key, "it is no list of texts")
    return texts


def text_of(metadata: Metadata, key: str) -> str | None:
    """The text of a key; None where it is missing."""
    found = metadata.get(key)
    if not isinstance(found, str | None):
        raise broken(key, "it is no text")
    return found


def flag_of(metadata: Metadata, key: str, default: bool) -> bool:
    found = metadata.get(key, default)
    if not isinstance(found, bool):
        raise broken(key, "it is neither true nor false")
    return found


def id_of(metadata: Metadata, key: str, vocabulary: Vocabulary) -> int | None:
    """The token's id that a key has; None where it is missing."""
    found = metadata.get(key)
    if found is None:
        return None
    if not isinstance(found, int) or isinstance(found, bool):
        raise broken(key, "it is no whole number")
    if not 0 <= found < len(vocabulary.tokens):
        raise broken(key, f"it is {found}, and there are {len(vocabulary.tokens)} tokens")
    return found


def quoted(token: str) -> str:
    return repr(token[:MAX_QUOTED])


def _numbers(metadata: Metadata, key: str, count: int) -> NDArray[np.generic]:
    found = metadata[key]
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "iuf":
        raise broken(key, "it is no list of numbers")
    if len(found) != count:
        raise broken(key, f"it has {len(found)} entries, and there are {count} tokens")
    return found
