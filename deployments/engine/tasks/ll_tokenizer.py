"""A model's tokens as llguidance sees them."""

from typing import TYPE_CHECKING

from tokenizers import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

NO_END = "<|end of a grammar|>"


def ll_tokenizer(source: Tokenizer, vocab_size: int, eos: frozenset[int]) -> "LLTokenizer":
    """The model's tokens as llguidance sees them; `vocab_size` is that of its logits."""
    from llguidance import LLTokenizer

    source.no_truncation()
    source.no_padding()
    size = max(source.get_vocab().values()) + 1
    ends = sorted(token_id for token_id in eos if token_id < size)
    if not ends:  # llguidance would take some token of text for the end
        source.add_special_tokens([NO_END])
        ends = [source.get_vocab()[NO_END]]
        size = max(size, ends[0] + 1)
    return LLTokenizer(source.to_str(), n_vocab=max(size, vocab_size), eos_token=ends)
