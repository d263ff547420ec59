"""Files of SentencePiece's models give the ids that SentencePiece gives."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.tokenizing.gguf_tokenizer import read_gguf_tokenizer
from tests.engine.loading.gguf.tokenizing import made

CHARSMAP = "tokenizer.ggml.precompiled_charsmap"
ODD = ("", " ", "\n", "   two   three  ", "龘 zzz q", "\x00\x07", "a\u00a0b\u3000c", "½", "🤗🤗zz")
PLAIN_TEXTS = st.text().map(lambda text: text.replace("\u2581", ""))  # which is read as a space
PIECES = made.trained_pieces(
    "bpe",
    vocab_size=900,
    byte_fallback=True,
    character_coverage=0.98,
    normalization_rule_name="identity",
    remove_extra_whitespaces=False,
)
UNIGRAMS = made.trained_pieces(
    "unigram", vocab_size=196, character_coverage=0.98, hard_vocab_limit=False
)


def reference(proto: Any) -> SentencePieceProcessor:
    return SentencePieceProcessor(model_proto=proto.SerializeToString())


BY_SCORE = read_gguf_tokenizer(made.of_pieces("llama", PIECES)).tokenizer
UNIGRAM = read_gguf_tokenizer(made.of_pieces("t5", UNIGRAMS)).tokenizer
THEIRS, THEIR_UNIGRAMS = reference(PIECES), reference(UNIGRAMS)


@pytest.mark.parametrize("text", [*made.TEXTS, *ODD], ids=ascii)
def test_pieces_by_score_are_those_of_the_library(text: str) -> None:
    ids = BY_SCORE.encode(text).ids
    assert ids == THEIRS.encode(text)
    assert BY_SCORE.decode(ids) == text


@given(text=PLAIN_TEXTS)
def test_any_text_has_the_pieces_of_the_library_and_comes_back(text: str) -> None:
    ids = BY_SCORE.encode(text).ids
    assert ids == THEIRS.encode(text)
    assert BY_SCORE.decode(ids) == text


def test_pieces_that_a_user_defined_are_found_before_others() -> None:
    proto = made.trained_pieces(
        "bpe",
        vocab_size=600,
        byte_fallback=True,
        character_coverage=0.98,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=False,
        user_defined_symbols=["<sep>", "\u2581\u2581", "\u2581\u2581\u2581", "don"],
    )
    theirs = reference(proto)
    raw = made.of_pieces("llama", proto)
    # Newer files spell the spaces in such tokens as spaces, and older ones don't.
    tokens = raw["tokenizer.ggml.tokens"]
    spaced = [
        token if len(token) == 1 or token.strip("\u2581") else " " * len(token) for token in tokens
    ]
    assert spaced != tokens
    for metadata in (raw, raw | {"tokenizer.ggml.tokens": spaced}):
        tokenizer = read_gguf_tokenizer(metadata).tokenizer
        for text in ("a    b<sep>c  d", "<sep><sep>", "   lead", "     five don't", *made.TEXTS):
            assert tokenizer.encode(text).ids == theirs.encode(text)
            assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize(("architecture", "n_left"), [("phi3", 1), ("llama", 3), (None, 3)])
def test_control_tokens_of_phi_3_take_the_spaces_behind_them(
    architecture: str | None, n_left: int
) -> None:
    metadata = made.of_pieces("llama", PIECES) | {"general.architecture": architecture}
    tokens, types = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    metadata["tokenizer.ggml.tokens"] = [*tokens[:-2], "<|user|>", "<|endoftext|>"]
    metadata["tokenizer.ggml.token_type"] = np.array([*types[:-2], made.CONTROL, made.CONTROL])
    tokenizer = read_gguf_tokenizer(metadata).tokenizer
    ids = tokenizer.encode("<|user|>\n<|endoftext|>\n", add_special_tokens=False).ids
    newlines = [at for at in ids if at < len(tokens) - 2]
    assert tokenizer.decode(newlines).count("\n") == (n_left + 1) // 2


def test_a_space_precedes_a_text_unless_the_file_says_no() -> None:
    without = made.of_pieces("llama", PIECES, add_space_prefix=False)
    tokenizer = read_gguf_tokenizer(without).tokenizer
    assert tokenizer.encode("the").tokens == ["the"]
    assert BY_SCORE.encode("the").tokens == ["\u2581t", "he"]
    by_default = made.of_pieces("llama", PIECES)
    del by_default["tokenizer.ggml.add_space_prefix"]
    assert read_gguf_tokenizer(by_default).tokenizer.encode("the").tokens == ["\u2581t", "he"]


def test_equal_scores_go_by_id() -> None:
    """Files that were made without a file of SentencePiece's have one score for all tokens."""
    scores = made.of_pieces("llama", PIECES)["tokenizer.ggml.scores"]
    equal = np.full_like(scores, -1000)
    tokenizer = read_gguf_tokenizer(made.of_pieces("llama", PIECES, scores=equal)).tokenizer
    for text in made.TEXTS:
        assert tokenizer.encode(text).ids == THEIRS.encode(text)


def test_what_no_piece_has_is_unknown_where_there_are_no_bytes() -> None:
    proto = made.trained_pieces("bpe", vocab_size=400, character_coverage=0.98)
    tokenizer = read_gguf_tokenizer(made.of_pieces("llama", proto)).tokenizer
    assert tokenizer.encode("a 龘龘 a").ids == reference(proto).encode("a 龘龘 a")
    assert 0 in tokenizer.encode("a 龘龘 a").ids


def test_a_vocabulary_must_have_a_token_for_what_no_piece_has() -> None:
    pieces = made.metadata("llama", ["a"], [made.NORMAL], scores=np.zeros(1, np.float32))
    pieces["tokenizer.ggml.add_bos_token"] = False
    with pytest.raises(GGUFError, match=r"key 'tokenizer\.ggml\.token_type': neither all bytes"):
        read_gguf_tokenizer(pieces)


def total(ids: list[int]) -> float:
    return float(sum(UNIGRAMS.pieces[at].score for at in ids))


@pytest.mark.parametrize("text", [*made.TEXTS[:6], *ODD[:5], "①ﬁ Ⅷ", "A\u030a \u212b"], ids=ascii)
def test_unigrams_are_those_of_the_library(text: str) -> None:
    assert UNIGRAM.encode(text).ids == THEIR_UNIGRAMS.encode(text)


@given(text=st.text("The price 123.$,-é日本①ﬁ\n\t龘"))
def test_unigrams_of_any_text_have_the_best_score(text: str) -> None:
    """Others with the same score are as good."""
    found, expected = UNIGRAM.encode(text).ids, THEIR_UNIGRAMS.encode(text)
    assert UNIGRAM.decode(found, skip_special_tokens=False) == UNIGRAM.decode(
        expected, skip_special_tokens=False
    )
    assert total(found) == pytest.approx(total(expected), abs=1e-3)
    assert found.count(2) == expected.count(2)


def test_a_text_of_unigrams_ends_with_eos_unless_the_file_says_no() -> None:
    metadata = made.of_pieces("t5", UNIGRAMS)
    assert read_gguf_tokenizer(metadata).tokenizer.encode("the").ids[-1] != 2
    del metadata["tokenizer.ggml.add_eos_token"]
    metadata["tokenizer.ggml.eos_token_id"] = 2
    tokenizer = read_gguf_tokenizer(metadata).tokenizer
    ids = tokenizer.encode("the").ids
    assert ids == [*tokenizer.encode("the", add_special_tokens=False).ids, 2]
    assert tokenizer.encode("the", "the").ids == ids * 2


def charsmap(change: int, value: int) -> np.ndarray[Any, Any]:
    found: np.ndarray[Any, Any] = made.of_pieces("t5", UNIGRAMS)[CHARSMAP].copy()
    found[change] = value
    return found


BROKEN = {
    "no bytes": np.array([1, 2, 3], np.int32),
    "a text": "map",
    "empty": np.array([], np.uint8),
    "too short": made.of_pieces("t5", UNIGRAMS)[CHARSMAP][:1000],
    "another size": charsmap(0, 4),
    "a unit that leads out of it": charsmap(7, 0x7F),
    "texts that are cut": made.of_pieces("t5", UNIGRAMS)[CHARSMAP][:-2000],
    "texts that are no UTF-8": charsmap(-2, 0xFF),
    "a text without an end": charsmap(-1, 0x41),
    "a text that is very long": np.concatenate(
        [charsmap(-1, 0x41), np.full(1000, 0x41, np.uint8), np.zeros(1, np.uint8)]
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_map_of_characters_is_refused(name: str) -> None:
    metadata = made.of_pieces("t5", UNIGRAMS, precompiled_charsmap=BROKEN[name])
    with pytest.raises(GGUFError, match=CHARSMAP):
        read_gguf_tokenizer(metadata)


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_pieces_without_scores_are_refused(kind: str) -> None:
    metadata = made.of_pieces(kind, UNIGRAMS)
    del metadata["tokenizer.ggml.scores"]
    with pytest.raises(GGUFError, match=r"key 'tokenizer\.ggml\.scores': it is missing"):
        read_gguf_tokenizer(metadata)


@given(data=st.data())
def test_a_map_that_is_taken_normalizes_any_text(data: st.DataObject) -> None:
    """A library that walks a broken one ends its thread."""
    found = made.of_pieces("t5", UNIGRAMS)[CHARSMAP].copy()
    for at in data.draw(st.lists(st.integers(4, len(found) - 1), min_size=1, max_size=30)):
        found[at] = data.draw(st.integers(0, 255))
    try:
        read = read_gguf_tokenizer(made.of_pieces("t5", UNIGRAMS, precompiled_charsmap=found))
    except GGUFError:
        return
    text = "".join(map(chr, range(1, 0x3000))) + data.draw(st.text())
    assert read.tokenizer.encode(text).ids
