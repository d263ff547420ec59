"""Finds the tokens of a vocabulary that contain a text, by one search over all their bytes."""

from bisect import bisect_right
from weakref import WeakKeyDictionary

from deployments.text.tokens.tokenizer import TextTokenizer

MAX_CACHED_TEXTS = 256  # of one tokenizer


class TokenSearch:
    """`vocab_size` is the model's. Ids that the tokenizer lacks have no bytes."""

    def __init__(self, vocab_size: int, tokenizer: TextTokenizer) -> None:
        self._joined = b""
        self._ends: list[int] = []
        self._found: dict[str, frozenset[int]] = {}
        pieces = [tokenizer.token_bytes(token_id) for token_id in range(vocab_size)]
        end = 0
        for piece in pieces:
            end += len(piece)
            self._ends.append(end)
        self._joined = b"".join(pieces)

    def ids_containing(self, text: str) -> frozenset[int]:
        found = self._found.get(text)
        if found is None:
            if len(self._found) >= MAX_CACHED_TEXTS:
                self._found.clear()
            found = self._found[text] = frozenset(self._search(text.encode()))
        return found

    def _search(self, text: bytes) -> set[int]:
        ids: set[int] = set()
        at = self._joined.find(text)
        while at >= 0:
            token_id = bisect_right(self._ends, at)
            end = self._ends[token_id]
            if at + len(text) <= end:
                ids.add(token_id)
                at = self._joined.find(text, end)
            else:  # the match goes on in the next token
                at = self._joined.find(text, at + 1)
        return ids


_searches: "WeakKeyDictionary[TextTokenizer, TokenSearch]" = WeakKeyDictionary()


def ids_containing(text: str, vocab_size: int, tokenizer: TextTokenizer) -> frozenset[int]:
    """The first search of a tokenizer is slow: it reads the whole vocabulary."""
    search = _searches.get(tokenizer)
    if search is None:
        search = _searches[tokenizer] = TokenSearch(vocab_size, tokenizer)
    return search.ids_containing(text)
