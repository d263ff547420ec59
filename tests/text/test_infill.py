"""Infill prompts: the marks a vocabulary has are found, and put in their family's order."""

import copy

import pytest
from tokenizers import AddedToken, Tokenizer

from deployments.text.infill import infill_ids
from deployments.text.tokenizer import TextTokenizer
from tests.text.cards import byte_level, card


def speaking(*marks: str, special: bool = True) -> TextTokenizer:
    tokenizer = copy.deepcopy(byte_level())
    assert isinstance(tokenizer, Tokenizer)
    tokenizer.add_tokens([AddedToken(mark, special=special, normalized=False) for mark in marks])
    return TextTokenizer(card(tokenizer))


def written(tokenizer: TextTokenizer, extra: list[tuple[str, str]] | None = None) -> str:
    ids = infill_ids(tokenizer, "def f(", ")", extra or [])
    assert ids is not None
    return tokenizer.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize(
    "marks",
    [
        ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
        ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
        ("<PRE>", "<SUF>", "<MID>"),
        ("<|fim_begin|>", "<|fim_hole|>", "<|fim_end|>"),
        (
            "<\uff5cfim\u2581begin\uff5c>",
            "<\uff5cfim\u2581hole\uff5c>",
            "<\uff5cfim\u2581end\uff5c>",
        ),
    ],
)
def test_the_hole_is_between_prefix_and_suffix(marks: tuple[str, str, str], special: bool) -> None:
    prefix, suffix, middle = marks
    assert written(speaking(*marks, special=special)) == f"{prefix}def f({suffix}){middle}"


def test_a_family_without_a_middle_has_the_suffix_first() -> None:
    assert written(speaking("[PREFIX]", "[SUFFIX]")) == "[SUFFIX])[PREFIX]def f("


def test_a_model_that_lacks_a_mark_fills_nothing_in() -> None:
    assert infill_ids(speaking("<PRE>", "<SUF>"), "a", "b") is None
    assert infill_ids(speaking(), "a", "b") is None


def test_other_files_come_first_under_their_names() -> None:
    fim = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    middle = "<|fim_prefix|>def f(<|fim_suffix|>)<|fim_middle|>"
    assert written(speaking(*fim), [("a.py", "x = 1\n")]) == f"x = 1\n{middle}"
    named = written(speaking(*fim, "<|repo_name|>", "<|file_sep|>"), [("a.py", "x = 1\n")])
    assert named == (
        "<|repo_name|>repository\n<|file_sep|>a.py\nx = 1\n<|file_sep|>filename\n" + middle
    )
