"""Text that a grammar forces or allows is written in tokens of text, never in control tokens."""

import json
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from deployments.text.grammar.grammar import from_json_schema
from deployments.text.grammar.ll_tokenizer import ll_tokenizer
from tests.text.cards import byte_level, metaspace, token_id

CONTROLS = ("<s>", "</s>", "<image>", "<think>", "<|im_end|>", "[INST]")
PLAIN = "[note]"


def unigram() -> Tokenizer:
    """Its control tokens are likely pieces of its vocabulary, as in sentencepiece."""
    pieces = [("<unk>", 0.0), *((name, 0.0) for name in CONTROLS)]
    pieces += [(f"<0x{byte:02X}>", -9.0) for byte in range(256)]
    pieces += [(chr(code), -5.0) for code in (0x2581, *range(33, 127))]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


SOURCES: Mapping[str, Callable[[], Tokenizer]] = {
    "byte-level": byte_level,
    "metaspace": metaspace,
    "unigram": unigram,
}


@cache
def seen(kind: str) -> tuple[Tokenizer, LLTokenizer]:
    source = Tokenizer.from_str(SOURCES[kind]().to_str())
    source.add_special_tokens([name for name in CONTROLS if name != "<think>"])
    source.add_tokens([AddedToken("<think>", special=False), AddedToken(PLAIN, special=False)])
    end = token_id(source, "<|im_end|>")
    return source, ll_tokenizer(source, 600, frozenset([end]))


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("name", [*CONTROLS, f"a {PLAIN} é<0x0A>", "<think><s>x</s>", "\n \n"])
def test_a_constant_is_written_in_tokens_of_text(kind: str, name: str) -> None:
    source, tokenizer = seen(kind)
    controls = {token_id(source, each) for each in CONTROLS}
    matcher = LLMatcher(tokenizer, from_json_schema({"const": name}, "p"), log_level=0)
    bits, ids = allocate_token_bitmask(1, tokenizer.vocab_size), list[int]()
    while not matcher.is_stopped():
        fill_next_token_bitmask(matcher, bits)
        allowed = np.flatnonzero(np.unpackbits(bits[0].view(np.uint8), bitorder="little"))
        if matcher.is_accepting():
            break
        assert controls.isdisjoint(allowed.tolist())
        ids.append(int(allowed[-1]))
        assert matcher.consume_token(ids[-1]), matcher.get_error()
    assert json.loads(tokenizer.decode_bytes(ids)) == name


@pytest.mark.parametrize("kind", SOURCES)
def test_a_control_token_of_a_grammar_is_that_token(kind: str) -> None:
    source, tokenizer = seen(kind)
    mark = token_id(source, "<think>")
    matcher = LLMatcher(tokenizer, json.dumps({"grammars": [{"lark_grammar": (
        f'start: "<think>" <[{mark}]> <s> "x"'
    )}]}), log_level=0)  # fmt: skip
    forced = matcher.compute_ff_tokens()
    assert [token for token in forced if token in (mark, token_id(source, "<s>"))] == forced[-3:-1]
    assert forced[-3:-1] == [mark, token_id(source, "<s>")]
    assert tokenizer.decode_bytes(forced[:-3]) == b"<think>"


def test_an_end_that_is_only_a_piece_of_the_vocabulary_is_no_text() -> None:
    source = Tokenizer.from_str(metaspace().to_str())
    state = json.loads(source.to_str())
    state["added_tokens"] = []
    end = token_id(source, "</s>")
    tokenizer = ll_tokenizer(Tokenizer.from_str(json.dumps(state)), 600, frozenset([end]))
    assert tokenizer.is_special_token(end)
    assert end not in tokenizer.tokenize_str("a</s>b")
