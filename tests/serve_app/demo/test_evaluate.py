"""The evaluation scores strictly, and a model in this process answers as one at a URL would."""

import json
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from deployments.text.reply import Reply, ReplyCall
from serve_app.demo.evaluation.answering import in_process
from serve_app.demo.evaluation.evaluate import all_cases, table
from serve_app.demo.evaluation.model_card import write_card
from serve_app.demo.evaluation.scoring import AnsweredCase, SkillScore, fits, has, scores
from serve_app.demo.training.corpus import Case, Turn
from serve_app.demo.training.corpus.chat import Expect, SampleCall, SampleTool
from serve_app.demo.training.network import DRAFT, Network, export

TOOL = SampleTool("clock", "Time", {"zone": {"type": "string"}}, ("zone",))


def reply(text: str = "", thought: str = "", **arguments: object) -> Reply:
    calls = (ReplyCall("1", "clock", json.dumps(arguments)),) if arguments else ()
    return Reply(text, thought, calls)


def case(calls: tuple[SampleCall, ...] | None = None, expect: Expect = Expect()) -> Case:  # noqa: B008
    return Case("skill", (Turn("user", "?"),), (TOOL,), False, calls, expect, strict=True)


@pytest.mark.parametrize(
    ("text", "words", "found"),
    [
        ("It is 12.", "is 12", True),
        ("It is 120.", "is 12", False),
        ("PARIS!", "paris", True),
        ("Parisian", "Paris", False),
        ("a\n b", "a b", True),
    ],
)
def test_words_are_found_whole(text: str, words: str, found: bool) -> None:
    assert has(text, words) == found


@pytest.mark.parametrize(
    ("expect", "right", "wrong"),
    [
        (Expect(exactly="- a\n- b"), "- a\n- b", "- a, b"),
        (Expect(says=("a", "b")), "b, a", "a"),
        (Expect(any_of=("a", "b")), "only b", "c"),
        (Expect(any_of=("a", "b", "c"), least=2), "a, c", "b"),
        (Expect(sentences=2), "One is 1.5. Two!", "One. Two. Three."),
        (Expect(words=1), "Paris", "It is Paris"),
    ],
)
def test_an_answer_fits_or_does_not(expect: Expect, right: str, wrong: str) -> None:
    assert fits(expect, reply(right))
    assert not fits(expect, reply(wrong))


def test_a_thought_is_wanted_or_unwanted() -> None:
    assert fits(Expect(thinks=True), reply("2", "Easy."))
    assert not fits(Expect(thinks=True), reply("2"))
    assert not fits(Expect(), reply("2", "Easy."))


def test_a_call_is_right_when_name_and_arguments_are() -> None:
    wanted = case((SampleCall("clock", {"zone": "UTC"}),))
    assert AnsweredCase(wanted, reply(zone="UTC")).is_right
    assert not AnsweredCase(wanted, reply(zone="utc")).is_right
    assert not AnsweredCase(wanted, reply("UTC")).is_right
    assert not AnsweredCase(wanted, Reply("", "", (ReplyCall("1", "clock", '{"zone": '),))).is_right


def test_decisions_are_scored_apart_from_arguments() -> None:
    wanted, unwanted = case((SampleCall("clock", {"zone": "UTC"}),)), case((), Expect(says=("no",)))
    answered = [
        AnsweredCase(wanted, reply(zone="Rome")),
        AnsweredCase(unwanted, reply("no")),
        AnsweredCase(unwanted, reply(zone="UTC")),
    ]
    assert scores(answered) == [
        SkillScore("skill", 1, 3),
        SkillScore("decisions whether to call", 2, 3),
    ]


def test_every_case_is_answered_by_the_engine(
    small_tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    export(Network(DRAFT, 0), small_tokenizer, tmp_path / "model")
    asked = all_cases(2)
    answered = list(in_process(str(tmp_path / "model"), asked))
    assert {id(each.case) for each in answered} == {id(each) for each in asked}
    results = scores(answered)
    assert {"Manta", "tools", "decisions whether to call"} <= {each.skill for each in results}
    assert table(results).row_count == len(results)


def test_the_card_has_scores_and_transcripts(tmp_path: Path) -> None:
    made = {
        "commit": "abc",
        "seed": 0,
        "steps": 10,
        "tokens": 1000,
        "loss": 0.5,
        "hours": 1.5,
        "parameters": 5_770_496,
        "device": "cpu",
        "resumed": [7],
    }
    (tmp_path / "training.json").write_text(json.dumps(made))
    talk = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello!\nYes?"}]
    write_card(tmp_path, [SkillScore("Manta", 9, 10)], [talk], "Twice.")
    card = (tmp_path / "README.md").read_text()
    assert "| Manta | 9 | 10 | 90.0% |" in card
    assert "| Steps | 10, resumed at 7 |" in card
    assert "not the same bytes. Twice.\n" in card
    assert "**Hi**\n\n> Hello!\n> Yes?" in card
