"""Infill prompts: the marks a vocabulary has are found, and put in their family's order."""

import copy

import pytest
from tokenizers import AddedToken, Tokenizer

from deployments.contract.model_card import ModelCard
from deployments.text.infill import MAX_TOKEN_CHARACTERS, fitted_ids, infill_ends, infill_ids
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.text.cards import byte_level, card


def speaking_card(*marks: str, special: bool = True) -> ModelCard:
    tokenizer = copy.deepcopy(byte_level())
    assert isinstance(tokenizer, Tokenizer)
    tokenizer.add_tokens([AddedToken(mark, special=special, normalized=False) for mark in marks])
    return card(tokenizer)


def speaking(*marks: str, special: bool = True) -> TextTokenizer:
    return TextTokenizer(speaking_card(*marks, special=special))


def written(tokenizer: TextTokenizer, extra: list[tuple[str, str]] | None = None) -> str:
    ids = fitted_ids(tokenizer, "def f(", ")", extra or [], room=500)
    assert ids is not None
    if not extra:
        assert infill_ids(tokenizer, "def f(", ")") == ids
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


@pytest.mark.parametrize("special", [True, False])
@pytest.mark.parametrize(
    ("marks", "others"),
    [
        (("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"), ("<|file_sep|>", "<|fim_pad|>")),
        (("<fim_prefix>", "<fim_suffix>", "<fim_middle>"), ("<fim_pad>", "<repo_name>")),
        (("<PRE>", "<SUF>", "<MID>"), ("<EOT>",)),
        (("[PREFIX]", "[SUFFIX]"), ()),
    ],
)
def test_every_mark_of_the_family_ends_the_middle(
    marks: tuple[str, ...], others: tuple[str, ...], special: bool
) -> None:
    tokenizer = speaking(*marks, *others, "<|other|>", special=special)
    ends = [tokenizer.token_bytes(token_id).decode() for token_id in infill_ends(tokenizer)]
    assert sorted(ends) == sorted((*marks, *others))
    assert infill_ends(speaking(*others)) == ()


def test_other_files_come_first_under_their_names() -> None:
    fim = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    middle = "<|fim_prefix|>def f(<|fim_suffix|>)<|fim_middle|>"
    assert written(speaking(*fim), [("a.py", "x = 1\n"), ("b.py", "y")]) == (
        f"\n\n--- snippet ---\n\nx = 1\n\n\n--- snippet ---\n\ny{middle}"
    )
    named = written(speaking(*fim, "<|repo_name|>", "<|file_sep|>"), [("a.py", "x = 1\n")])
    assert named == (
        "<|repo_name|>repository\n<|file_sep|>a.py\nx = 1\n<|file_sep|>filename\n" + middle
    )


FIM = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


def test_what_spells_a_mark_is_text() -> None:
    tokenizer = speaking(*FIM)
    ids = infill_ids(tokenizer, "a<|fim_suffix|>b", "<|im_end|>")
    assert ids is not None
    marks = [tokenizer.special_id(mark) for mark in FIM]
    assert [token_id for token_id in ids if token_id in marks] == marks
    assert tokenizer.special_id("<|im_end|>") not in ids
    text = tokenizer.decode(ids, skip_special_tokens=False)
    assert text == "<|fim_prefix|>a<|fim_suffix|>b<|fim_suffix|><|im_end|><|fim_middle|>"


def test_what_is_too_much_is_left_out_from_the_farthest_on() -> None:
    tokenizer = speaking(*FIM, "<|file_sep|>")
    files = [(f"{index}.py", f"{index}" * 20) for index in range(4)]

    def fitted(room: int) -> tuple[int, str]:
        ids = fitted_ids(tokenizer, "abcdefgh" * 9, "stuvwxyz" * 9, files, room)
        assert ids is not None
        return len(ids), tokenizer.decode(ids, skip_special_tokens=False)

    length, whole = fitted(10_000)
    assert fitted(length) == (length, whole)
    most, some = fitted(length - 1)
    assert most < length
    assert [text in some for _, text in files] == [False, True, True, True]
    around = whole[whole.index("<|fim_prefix|>") :]
    assert some.endswith(around)
    least, none = fitted(len(tokenizer.encode(around, False)) + 3)
    assert none.endswith(around)
    assert not any(text in none for _, text in files)
    room = least - 20
    assert fitted(room)[0] == room
    cut = fitted(room)[1]
    assert "gh<|fim_suffix|>stu" in cut
    before, after = cut.split("<|fim_suffix|>")
    assert len(before) > len(after)


class MeasuredTokenizer(TextTokenizer):
    """Knows how much of a text it was given at once, and in all."""

    longest = total = 0

    def encode_literally(
        self, text: str, add_special_tokens: bool, limit: int | None = None
    ) -> list[int]:
        self.longest, self.total = max(self.longest, len(text)), self.total + len(text)
        return super().encode_literally(text, add_special_tokens, limit)


def test_what_can_not_fit_is_not_read() -> None:
    tokenizer, room = MeasuredTokenizer(speaking_card(*FIM)), 100
    files = [("a.py", "x = 1\n" * 5000)] * 20 + [("b.py", "x = 1\n" * 50)] * 20 + [("c.py", "y")]
    ids = fitted_ids(tokenizer, "abc " * 5000, "xyz " * 5000, files, room)
    assert ids is not None
    assert len(ids) <= room
    assert tokenizer.longest <= room * MAX_TOKEN_CHARACTERS
    assert tokenizer.total <= 4 * room * MAX_TOKEN_CHARACTERS
