"""The bytes that each token of a model stands for in a text."""

import json

from tokenizers import Tokenizer

from deployments.text.tokens.byte_alphabet import Alphabet


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
