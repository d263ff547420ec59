"""A model's tokens as llguidance sees them: text never spells a control token, neither where a
grammar forces it nor where a mask allows it.
"""

import json
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from deployments.text.tokens.token_bytes import BYTE_TOKEN

if TYPE_CHECKING:
    from llguidance import LLTokenizer

NO_END = "<|end of a grammar|>"
# No text has this character. llguidance takes off what a tokenizer prepends to a text, but the
# names of added tokens that are normalized have it by then.
HIDDEN = "\U0010fffd"
UNLIKELY = 1000.0  # below the least likely piece of a unigram model


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
    source.add_special_tokens([name for end in ends if (name := source.id_to_token(end))])
    return LLTokenizer(literal_json(source), n_vocab=max(size, vocab_size), eos_token=ends)


def literal_json(source: Tokenizer) -> str:
    """The tokenizer.json with which llguidance encodes the names of control tokens as text. To it
    all special tokens are control tokens, and all added ones in angle brackets.
    """
    state = json.loads(source.to_str())
    hiding = {"type": "Prepend", "prepend": HIDDEN}
    before = [state["normalizer"]] if state["normalizer"] else []
    state["normalizer"] = {"type": "Sequence", "normalizers": [*before, hiding]}
    hidden = set[str]()
    for token in state["added_tokens"]:
        name = token["content"]
        token["normalized"] = token["special"] or (name[:1] == "<" and name[-1:] == ">")
        if token["normalized"]:
            hidden.add(name)
    _make_unlikely(state["model"], hidden)
    return json.dumps(state)


def _make_unlikely(model: dict[str, Any], names: set[str]) -> None:
    """A unigram model takes any piece of its vocabulary, also one that names a byte, unless others
    are more likely.
    """
    if model["type"] == "Unigram":
        least = min(score for _, score in model["vocab"]) - UNLIKELY
        model["vocab"] = [
            [piece, least if piece in names or BYTE_TOKEN.fullmatch(piece) else score]
            for piece, score in model["vocab"]
        ]
