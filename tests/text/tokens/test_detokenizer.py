"""The pieces joined are the text of all ids, whatever the ids and wherever they were cut."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployments.text.tokens.detokenizer import Detokenizer
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.text.cards import byte_level, card, metaspace

BYTES = TextTokenizer(card())
SPACED = TextTokenizer(card(metaspace()))

ids_of = {
    BYTES: st.lists(st.integers(0, byte_level().get_vocab_size() - 1), max_size=30),
    SPACED: st.lists(st.integers(0, metaspace().get_vocab_size() - 1), max_size=30),
}
TOKENIZERS = [pytest.param(BYTES, id="bytes"), pytest.param(SPACED, id="metaspace")]


def pieces(detokenizer: Detokenizer, ids: Sequence[int], cuts: list[int]) -> list[str]:
    edges = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    parts = [ids[left:right] for left, right in itertools.pairwise(edges)]
    return [*map(detokenizer.push, parts), detokenizer.flush()]


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(data=st.data(), cuts=st.lists(st.integers(0, 100)), skip=st.booleans())
def test_pieces_joined_are_the_whole(
    tokenizer: TextTokenizer, data: st.DataObject, cuts: list[int], skip: bool
) -> None:
    ids = data.draw(ids_of[tokenizer])
    detokenizer = Detokenizer(tokenizer, skip, at_start=True)
    text = "".join(pieces(detokenizer, ids, cuts))
    assert text == tokenizer.decode(ids, skip)
    assert detokenizer.offset == len(text)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(before=st.text(), after=st.text())
def test_a_continuation_keeps_its_first_space(
    tokenizer: TextTokenizer, before: str, after: str
) -> None:
    ids = tokenizer.encode(before + after, False)
    prompt = tokenizer.encode(before, False)
    if ids[: len(prompt)] != prompt or not prompt:
        return
    continued = "".join(pieces(Detokenizer(tokenizer), ids[len(prompt) :], [1, 2, 3]))
    assert tokenizer.decode(prompt) + continued == tokenizer.decode(ids)


@given(text=st.text(alphabet="\u20ac\u65e5\U0001f642a", max_size=10))
def test_no_piece_breaks_a_character(text: str) -> None:
    detokenizer = Detokenizer(BYTES)
    ids = BYTES.encode(text, False)
    assert "\ufffd" not in "".join(detokenizer.push([token_id]) for token_id in ids)
    assert detokenizer.flush() == ""


def test_an_unfinished_character_ends_as_a_replacement() -> None:
    detokenizer = Detokenizer(BYTES)
    first, *_ = (i for i in range(400) if BYTES.token_bytes(i) == b"\xf0")
    assert detokenizer.push([first]) == ""
    assert detokenizer.flush() == "\ufffd"
