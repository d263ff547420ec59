"""What a request's grammar lets a model say, with tokens of bytes and of no marks."""

from llguidance import LLMatcher, LLTokenizer

from tests.text.cards import byte_level, token_id


def may_say(grammar: str, text: str) -> bool:
    """Whether the text may be all of a reply."""
    tokenizer = byte_level()
    lean = LLTokenizer(tokenizer.to_str(), eos_token=token_id(tokenizer, "<|im_end|>"))
    matcher = LLMatcher(lean, grammar, log_level=0)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    return bool(matcher.consume_tokens(ids) and matcher.is_accepting())
