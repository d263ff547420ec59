"""The corpus is a function of its seed, well formed, and never shows what the evaluation asks."""

import re
from itertools import islice

import pytest

from serve_app.demo.training.corpus import Case, Chat, Turn, cases, chats, talks
from serve_app.demo.training.corpus.names import NAMES, code, name, town, word
from serve_app.demo.training.corpus.skills import EARLY, EVALUATED
from serve_app.demo.training.corpus.split import SeededDraw, is_held, normal, parted
from serve_app.demo.training.corpus.subjects.sums import any_sum
from serve_app.demo.training.corpus.tools.kinds import HELD_OUT
from tests.effort import tries

SAMPLE = tries(10_000, 30_000)
A_SKILL = 200
SUM = re.compile(r"\b(\d+) (plus|minus|times|divided by) (\d+) is (\d+)\b")


@pytest.fixture(scope="module")
def sample() -> list[Chat]:
    return list(islice(chats("proof"), SAMPLE))


@pytest.fixture(scope="module")
def held() -> list[Case]:
    return [case for skill in EVALUATED for case in cases(skill, A_SKILL)]


def prompt(turns: list[Turn] | tuple[Turn, ...], tools: tuple[object, ...]) -> str:
    return repr(([(turn.role, normal(turn.text), turn.calls) for turn in turns], tools))


def test_the_corpus_is_a_function_of_its_seed() -> None:
    assert list(islice(chats(7), 50)) == list(islice(chats(7), 50))
    assert list(islice(chats(7), 50)) != list(islice(chats(8), 50))


def test_every_chat_ends_with_the_assistant_and_says_something(sample: list[Chat]) -> None:
    for chat in sample:
        assert chat.turns[-1].role == "assistant"
        assert all(turn.text.strip() == turn.text for turn in chat.turns if turn.role != "user")
        assert all(turn.text or turn.calls for turn in chat.turns)


@pytest.mark.parametrize("skill", EARLY)
def test_a_skill_hardly_repeats_itself_or_is_a_closed_one(skill: str) -> None:
    some = [prompt(chat.turns[:-1], chat.tools) for chat in islice(talks(1, skill), 400)]
    assert len(set(some)) > 150


def test_no_held_out_prompt_is_in_the_corpus(sample: list[Chat], held: list[Case]) -> None:
    shown = {
        prompt(chat.turns[:at], chat.tools)
        for chat in sample
        for at, turn in enumerate(chat.turns)
        if turn.role == "assistant"
    }
    assert not [case for case in held if prompt(case.turns, case.tools) in shown]


def test_what_is_asked_last_is_never_asked_in_training(
    sample: list[Chat], held: list[Case]
) -> None:
    """But for a few: with another conversation before, or other tools, they are other questions."""
    asked = {normal(turn.text) for chat in sample for turn in chat.turns if turn.role == "user"}
    last = [normal(case.turns[-1].text) for case in held if case.turns[-1].role == "user"]
    assert sum(text in asked for text in last) <= 0.02 * len(last)


def test_the_partition_of_phrasings_is_one() -> None:
    phrasings = tuple(f"phrasing {number}" for number in range(50))
    ours, theirs = parted(phrasings)
    assert sorted(ours + theirs) == sorted(phrasings)
    assert len(theirs) == 7
    train, held = SeededDraw(1), SeededDraw(1, held=True)
    assert {train.ask(phrasings) for _ in range(2000)} == set(ours)
    assert {held.ask(phrasings) for _ in range(2000)} == set(theirs)


def test_phrasings_that_differ_in_case_or_marks_stay_together() -> None:
    ours, theirs = parted(("Hello!", "hello", "HELLO?", "Hi", "Good day", "Hey"))
    assert not {normal(text) for text in ours} & {normal(text) for text in theirs}


@pytest.mark.parametrize("make", [name, town, word, code])
def test_names_and_words_belong_to_one_side_by_rule(make: object) -> None:
    assert callable(make)
    for side in (False, True):
        draw = SeededDraw("names", held=side)
        assert all(is_held(make(draw)) == side for _ in range(500))


def test_nobody_in_training_has_a_held_out_name() -> None:
    held = {each for each in NAMES if is_held(each)}
    assert len(held) > 20
    for skill in ("small talk", "memory", "system prompts", "stories"):
        for chat in islice(talks(4, skill), 1000):
            words = set(re.findall(r"\w+", " ".join(turn.text for turn in chat.turns)))
            assert not words & (held - {"Mark", "Will"}), words & held


def test_held_out_sums_are_never_asked_in_training() -> None:
    chats_of_sums = islice(talks(2, "arithmetic"), 5000)
    asked = {sum_in(chat.turns[-2].text) for chat in chats_of_sums}
    held = {sum_in(case.turns[-1].text) for case in cases("arithmetic", 300)} - {""}
    assert len(held) > 150
    assert not asked & held


def sum_in(text: str) -> str:
    found = re.search(r"(\d+) ?(\+|-|\*|/|plus|minus|times|divided by) ?(\d+)", text)
    words = {"plus": "+", "minus": "-", "times": "*", "divided by": "/"}
    return f"{found[1]} {words.get(found[2], found[2])} {found[3]}" if found else ""


def test_every_sum_that_is_worked_out_is_right(sample: list[Chat]) -> None:
    found = 0
    for chat in sample:
        if chat.tools:
            continue
        for turn in chat.turns:
            for a, sign, b, result in SUM.findall(turn.text + turn.thought):
                found += 1
                values = {
                    "plus": int(a) + int(b),
                    "minus": int(a) - int(b),
                    "times": int(a) * int(b),
                    "divided by": int(a) / max(1, int(b)),
                }
                assert values[sign] == int(result), turn.text
    assert found > SAMPLE / 6


def test_sums_stay_below_a_hundred() -> None:
    draw = SeededDraw(3)
    for _ in range(5000):
        made = any_sum(draw)
        assert 0 <= made.result <= 100
        assert 0 <= max(made.a, made.b) <= 100


def test_tools_written_for_evaluation_are_never_offered_in_training(sample: list[Chat]) -> None:
    written = {name for kind in HELD_OUT for name in kind.names}
    assert not written & {tool.name for chat in sample for tool in chat.tools}


def test_calls_name_offered_tools_and_fit_their_schemas(sample: list[Chat]) -> None:
    types = {"string": str, "integer": int, "number": int, "boolean": bool}
    calls = 0
    for chat in sample:
        tools = {tool.name: tool for tool in chat.tools}
        for call in (call for turn in chat.turns for call in turn.calls):
            calls += 1
            tool = tools[call.name]
            assert list(call.arguments) == list(tool.required)
            for field, value in call.arguments.items():
                assert isinstance(value, types[str(tool.properties[field]["type"])])
    assert calls > SAMPLE / 10


@pytest.mark.parametrize("skill", EVALUATED)
def test_a_skill_has_a_hundred_cases_or_all_that_there_are(skill: str) -> None:
    found = cases(skill, 100)
    assert len(found) >= (50 if skill == "identity" else 100)
    assert found == cases(skill, 100)
