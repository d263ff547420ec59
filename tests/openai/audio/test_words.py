"""Tokens become words as in transformers, each with the time of its first and last one."""

from collections.abc import Sequence

import pytest

from deployments.contract.speech_rules import SpeechRules, TranscriptParams
from deployments.openai.audio.segments import Segment, Window
from deployments.openai.audio.words import words_of

END, FIRST_TIME = 256, 260
RULES = SpeechRules(
    sampling_rate=100,
    window=3000,
    tick=2,
    start=257,
    before=258,
    no_speech=259,
    transcript=TranscriptParams(first_time=FIRST_TIME, no_times=FIRST_TIME - 1, end=END),
)


def decode(ids: Sequence[int]) -> str:
    """A token is a byte."""
    return bytes(ids).decode(errors="replace")


def words(text: str, language: str = "en", n_samples: int = 3000) -> list[tuple[str, float, float]]:
    """Returns the words of a segment behind another one, with their times.

    Each token is heard a second later than the one before.
    """
    before, spoken = (FIRST_TIME, 65, FIRST_TIME), tuple(text.encode(errors="surrogateescape"))
    ids = (*before, FIRST_TIME, *spoken, FIRST_TIME + 1)
    window = Window(
        first=1000,
        n_samples=n_samples,
        ids=ids,
        logprob=0.0,
        temperature=0.0,
        no_speech=0.0,
        text=text,
        ticks=tuple(50.0 * n for n in range(len(ids))),
    )
    segment = Segment(start=0, end=0, ids=ids[len(before) :], first=len(before))
    found = words_of(window, segment, RULES, language, decode)
    return [(word.text, word.start, word.end) for word in found]


def test_a_word_lasts_from_its_first_token_to_its_last() -> None:
    assert words(" We are.") == [(" We", 13, 16), (" are.", 16, 21)]


def test_no_word_ends_behind_its_window() -> None:
    assert words(" We are.", n_samples=550) == [(" We", 13, 15.5), (" are.", 15.5, 15.5)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (' He said: "Yes (no)!"', [" He", " said:", ' "Yes', ' (no)!"']),
        (" seven-thirty.", [" seven", "-thirty."]),
        ("No space, ¿qué?", ["No", " space,", " ¿qué?"]),
        (" Zoë", [" Zoë"]),
        ("", []),
    ],
)
def test_punctuation_belongs_to_the_word_beside_it(text: str, expected: list[str]) -> None:
    assert [word for word, _, _ in words(text)] == expected


def test_a_language_without_spaces_has_a_word_for_each_character() -> None:
    assert words("今日は。", "ja") == [("今", 13, 16), ("日", 16, 19), ("は。", 19, 25)]


def test_bytes_that_are_no_character_end() -> None:
    assert words("\udcff\udcff a b") == [("\ufffd\ufffd a", 13, 17), (" b", 17, 19)]
