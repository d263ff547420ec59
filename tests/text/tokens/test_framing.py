"""Texts within special tokens: cut as the tokenizers' own truncation cuts them."""

from itertools import product

import pytest

from deployments.text.tokens.framing import Cut, Framed
from deployments.text.tokens.tokenizer import LARGE, TextTokenizer
from tests.text.cards import WORDS, bert_like, card

TEXTS = TextTokenizer(card(bert_like()))


def text(n: int, first: int = 0) -> str:
    return " ".join(WORDS[first : first + n])


def framed(*texts: str, cut: Cut | None = None) -> Framed:
    return TEXTS.encode_framed(texts, 64, cut)


def test_a_text_and_a_pair_have_the_models_special_tokens() -> None:
    assert framed(text(2)) == ([0, 3, 4, 1], 0)
    assert framed(text(1), text(2, 5)) == ([0, 3, 1, 8, 9, 1], 3)
    assert framed("", "") == ([0, 1, 1], 2)


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_longer_text_is_cut_first_as_the_library_does(side: str) -> None:
    whole = bert_like()
    for a, b, limit in product((0, 1, 4, 9), (0, 3, 8, 9), range(3, 22)):
        whole.enable_truncation(limit, strategy="longest_first", direction=side)
        pair = text(a), text(b, 20)
        cut = Cut(limit=limit, keeps_end=side == "left")
        assert framed(*pair, cut=cut).ids == whole.encode(*pair).ids
        if limit > 2:
            assert framed(text(a), cut=cut).ids == whole.encode(text(a)).ids


def test_each_text_may_have_a_limit_of_its_own() -> None:
    cut = Cut(limit=None, per_text=(2, 3))
    assert framed(text(9), text(9), cut=cut).ids == framed(text(2), text(3)).ids
    cut = Cut(limit=None, per_text=(None, 3))
    assert framed(text(9), text(9), cut=cut).ids == framed(text(9), text(3)).ids


def test_of_a_huge_text_only_what_can_be_left_is_encoded_and_without_a_cut_it_is_counted() -> None:
    huge = " ".join(WORDS[:1] * LARGE)
    assert framed(huge, cut=Cut(limit=5)).ids == [0, 3, 3, 3, 1]
    end = huge + " " + text(1, 7)
    assert framed(end, cut=Cut(limit=4, keeps_end=True)).ids == [0, 3, 10, 1]
    assert len(framed(huge).ids) > 64
