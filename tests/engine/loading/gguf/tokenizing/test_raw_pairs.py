"""Files whose merges are of plain text, as Gemma 4's, give the ids of these merges."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.engine.loading.gguf.tokenizing.gguf_tokenizer import read_gguf_tokenizer
from deployments.engine.loading.gguf.tokenizing.sentence_pieces import merges_by_score
from deployments.engine.loading.gguf.tokenizing.vocabulary import read_vocabulary
from tests.engine.loading.gguf.tokenizing import made

PIECES = made.trained_pieces(
    "bpe",
    vocab_size=900,
    byte_fallback=True,
    character_coverage=0.98,
    normalization_rule_name="identity",
    remove_extra_whitespaces=False,
    add_dummy_prefix=False,
)
SCORED = made.of_pieces("llama", PIECES)


def raw(kind: str, **fields: Any) -> dict[str, Any]:
    """The pieces of SentencePiece as a vocabulary with merges, which has no scores."""
    merges = [" ".join(pair) for pair in merges_by_score(read_vocabulary(SCORED))]
    tokens, types = SCORED["tokenizer.ggml.tokens"], SCORED["tokenizer.ggml.token_type"]
    given = {"merges": merges, "bos_token_id": 1, "unknown_token_id": 0, **fields}
    return made.metadata(kind, tokens, types, **given)


BY_SCORE = read_gguf_tokenizer(SCORED).tokenizer
BY_RANK = read_gguf_tokenizer(raw("gemma4")).tokenizer


@pytest.mark.parametrize("text", made.TEXTS, ids=ascii)
def test_merges_of_plain_text_give_the_ids_of_scores(text: str) -> None:
    ids = BY_RANK.encode(text, add_special_tokens=False).ids
    assert ids == BY_SCORE.encode(text).ids
    assert BY_RANK.decode(ids) == text


@given(text=st.text().map(lambda text: text.replace("\u2581", "")))
def test_any_text_comes_back_from_its_merges(text: str) -> None:
    ids = BY_RANK.encode(text, add_special_tokens=False).ids
    assert ids == BY_SCORE.encode(text).ids
    assert BY_RANK.decode(ids) == text


def test_gemma_4_begins_texts_with_bos_although_its_files_say_no() -> None:
    for adds in ({}, {"add_bos_token": False}, {"add_bos_token": True}):
        assert read_gguf_tokenizer(raw("gemma4", **adds)).tokenizer.encode("").ids == [1]


@pytest.mark.parametrize(
    ("pre", "expected"), [("sarvam-moe", []), ("granite-embed-multi-311m", [1]), ("gemma4", [1])]
)
def test_rules_of_byte_level_files_may_be_of_plain_text(pre: str, expected: list[int]) -> None:
    tokenizer = read_gguf_tokenizer(raw("gpt2", pre=pre)).tokenizer
    assert tokenizer.encode("").ids == expected
    for text in made.TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert ids == BY_SCORE.encode(text).ids
