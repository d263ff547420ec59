"""What a grammar lets a model say: with tokens of bytes, and as a request's, of a tokenizer."""

from functools import cache

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from tests.text.cards import byte_level, token_id


class Bytes:
    """A tokenizer of one token a byte, as llguidance asks for it."""

    eos_token_id = 256
    bos_token_id = None
    tokens = tuple(bytes([i]) for i in range(256)) + (b"<end>",)
    special_token_ids = (256,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


@cache
def tokenizer() -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(Bytes()))


def allows(grammar: str, text: str) -> bool:
    matcher = LLMatcher(tokenizer(), grammar, log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    ids = list(text.encode())
    return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


def may_say(grammar: str, text: str) -> bool:
    """Whether the text may be all of a reply."""
    tokenizer = byte_level()
    lean = LLTokenizer(tokenizer.to_str(), eos_token=token_id(tokenizer, "<|im_end|>"))
    matcher = LLMatcher(lean, grammar, log_level=0)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return bool(matcher.consume_tokens(ids) and matcher.is_accepting())
