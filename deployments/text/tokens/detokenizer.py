"""Turns token ids into text as they come. The joined text is the same however they were cut."""

import codecs
from collections.abc import Iterable

from deployments.text.tokens.tokenizer import TextTokenizer

UTF8 = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Holds back the bytes of an incomplete character, so that no piece has a broken one.

    `offset` is the number of characters returned. Before a push it is the offset of the pushed
    token's first character. `at_start`: the text is decoded from its beginning. A continuation
    keeps the space of its first token. `kept_specials` are special tokens that are never skipped.
    """

    def __init__(
        self,
        tokenizer: TextTokenizer,
        skip_special_tokens: bool = True,
        *,
        kept_specials: frozenset[int] = frozenset(),
        at_start: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._kept = kept_specials
        self._skip = skip_special_tokens
        self._drop_space = at_start and tokenizer.starts_with_space
        self._decoder = UTF8("replace")
        self.offset = 0

    def push(self, ids: Iterable[int]) -> str:
        raw = b"".join(
            [
                self._tokenizer.text_bytes(token_id, self._skip and token_id not in self._kept)
                for token_id in ids
            ]
        )
        return self._returned(self._decoder.decode(raw))

    def flush(self) -> str:
        return self._returned(self._decoder.decode(b"", final=True))

    def _returned(self, text: str) -> str:
        if self._drop_space and text:
            self._drop_space = False
            text = text.removeprefix(" ")
        self.offset += len(text)
        return text
