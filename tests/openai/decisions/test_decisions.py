"""Decisions about an input: what a generator's next token says of each option."""

import asyncio
import math
from typing import Any

import pytest
from openai.types import Decision
from pydantic import TypeAdapter

from deployments.contract.outputs import LabelParams
from deployments.contract.requests import GenerationRequest
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import ScriptedEngine, pools
from tests.openai.pooling import EMBEDS, asked, known
from tests.openai.serving import post, sdk, served
from tests.text.cards import card

DECISIONS, SYSTEM_ONE = "/v1/decisions", "/v1/systemone"
TOKENIZER = TextTokenizer(card())
MODEL = card(context_length=2048)
PREDICATE = {"type": "predicate", "name": "rude", "instructions": "The text is rude"}
CHOICE = {
    "type": "choice",
    "instructions": [{"type": "input_text", "text": "Which team?"}],
    "choices": [{"value": "sales"}, {"value": True, "description": "yes, all"}, {"value": "true"}],
}
SCORE = {
    "type": "score",
    "name": "mood",
    "instructions": "How glad?",
    "levels": [{"label": "not"}, {"label": "so so"}, {"label": "very", "description": "laughs"}],
}
QUESTIONS = [PREDICATE, CHOICE, SCORE]


def label_logprobs(request: GenerationRequest) -> list[list[float]]:
    """The labels have 1/10, 2/10, ... of all probability."""
    assert isinstance(request.output, LabelParams)
    return [[math.log(index / 10) for index, _ in enumerate(request.output.token_ids, start=1)]]


def decided(body: object, path: str = DECISIONS) -> Any:
    return asked(path, body, MODEL, pools(label_logprobs))


def prompt(request: GenerationRequest) -> str:
    return TOKENIZER.decode(request.prompt_ids, skip_special_tokens=False)


def test_each_question_is_read_off_the_labels_of_its_options() -> None:
    got = decided({"model": "tiny", "input": "Hello", "questions": QUESTIONS})
    rude, team, mood = got.requests
    names = [TOKENIZER.token_name(token_id) for token_id in team.output.token_ids]
    assert names == ["A", "B", "C"]
    assert prompt(team).startswith("<|im_start|>user\nHello\n\nQuestion: Which team?\nA. sales\n")
    assert "\nB. true: yes, all\nC. true\n" in prompt(team)
    assert prompt(team).endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert [len(request.output.token_ids) for request in (rude, team, mood)] == [2, 3, 3]
    answer = TypeAdapter(Decision).validate_python(got.json)
    assert [result.type for result in answer.answers] == ["predicate", "choice", "score"]
    assert [result.name for result in answer.answers] == ["rude", None, "mood"]
    assert answer.usage.input_tokens == sum(len(request.prompt_ids) for request in got.requests)


def test_answers_are_probabilities_among_the_options() -> None:
    answers = decided({"input": "Hello", "questions": QUESTIONS}).json["answers"]
    assert answers[0] == {"type": "predicate", "name": "rude", "probability": pytest.approx(1 / 3)}
    assert answers[1]["choice"] == "true"
    assert answers[1]["confidence"] == pytest.approx(0.5 * 0.6)  # of all tokens
    values = [option["value"] for option in answers[1]["probabilities"]]
    assert values == ["sales", True, "true"]
    assert answers[2]["score"] == pytest.approx(1 * 2 / 6 + 2 * 3 / 6)
    assert [option["value"] for option in answers[2]["probabilities"]] == [0, 1, 2]
    assert [option["label"] for option in answers[2]["probabilities"]] == ["not", "so so", "very"]


def test_the_sdk_asks_and_reads() -> None:
    async def ask() -> Decision:
        async with sdk(served(ScriptedEngine(pools(label_logprobs), MODEL))) as client:
            return await client.decisions.create(
                model="tiny",
                input="Hello",
                questions=[{"type": "predicate", "instructions": "It is rude"}],
            )

    [answer] = asyncio.run(ask()).answers
    assert answer.type == "predicate"


def test_a_conversation_is_written_out() -> None:
    conversation = [
        {"role": "system", "content": "Be kind"},
        {"role": "user", "content": [{"type": "input_json", "data": {"a": 1}}]},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "rain"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "It rains"}]},
    ]
    [request] = decided({"input": conversation, "questions": [PREDICATE]}).requests
    text = (
        'System: Be kind\n\nUser: {"a": 1}\n\nAssistant calls look with {}\n\nResult: rain'
        "\n\nAssistant: It rains\n\nQuestion: The text is rude\n"
    )
    assert text in prompt(request)


MANY = [{"value": str(index)} for index in range(99)]
IMAGE = {"type": "input_image", "image_url": "data:"}
LOST_OUTPUT = {"type": "function_call_output", "call_id": "1", "output": "x"}


def test_one_question_goes_first_so_that_the_others_find_its_input_cached() -> None:
    most = 0

    def reads(request: GenerationRequest) -> list[list[float]]:
        nonlocal most
        most = max(most, engine.running)
        return label_logprobs(request)

    engine = ScriptedEngine(pools(reads), MODEL)
    body = {"input": "Hello " * 99, "questions": [PREDICATE, CHOICE, SCORE]}
    answers = asyncio.run(post(engine, DECISIONS, body)).json()["answers"]
    assert [answer["type"] for answer in answers] == ["predicate", "choice", "score"]
    assert most == 2  # of three


WRONG: list[tuple[dict[str, object], str]] = [
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"questions": []}, "questions"),
    ({"questions": [PREDICATE] * 401}, "questions"),
    ({"questions": [{"type": "poem", "instructions": "x"}]}, "questions[0].type"),
    ({"questions": [{**CHOICE, "choices": [{"value": "a"}]}]}, "questions[0].choices"),
    ({"questions": [{**CHOICE, "choices": [{"value": "a"}] * 2}]}, "questions[0]"),
    (
        {"questions": [{**CHOICE, "choices": [{"value": str(i)} for i in range(99)]}]},
        "questions[0]",
    ),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
        "input[0].content[0].type",
    ),
    (
        {"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]},
        "input[0].call_id",
    ),
    ({"input": "x " * 3000}, "questions[0]"),
    ({"input": "x" * (5 << 20)}, "questions"),
    ({"joint": True}, "joint"),
    ({"poem": 1}, "poem"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG)
def test_what_is_wrong_is_named(fields: dict[str, object], param: str) -> None:
    body = {"input": "Hello", "questions": [PREDICATE], **fields}
    assert decided(body).refusal()["param"] == param


def test_a_model_that_generates_nothing_decides_nothing() -> None:
    body = {"input": "Hello", "questions": [PREDICATE]}
    error = asked(DECISIONS, body, known(EMBEDS)).refusal()
    assert error["message"] == "The model 'tiny' can't generate text: it makes embeddings"


def test_system_one_answers_by_the_names_of_its_questions() -> None:
    wear, levels = {"coat": None, "hat": "wide"}, ["no", "a bit", "yes"]
    body = {
        "state": {"weather": "rain"},
        "instructions": "Be strict",
        "questions": {
            "wet": {"type": "noul", "instructions": "Is it wet?", "criteria": {"true": "it rains"}},
            "wear": {"type": "choice", "instructions": "What?", "criteria": wear},
            "cold": {"type": "score", "instructions": {"about": "cold"}, "criteria": levels},
        },
    }
    got = decided(body, SYSTEM_ONE)
    wet, worn, cold = map(prompt, got.requests)
    assert wet.startswith('<|im_start|>system\nBe strict<|im_end|>\n<|im_start|>user\n{"weather"')
    assert "Question: Is it wet?\nA. yes: it rains\nB. no\n" in wet
    assert "\nA. coat\nB. hat: wide\n" in worn
    assert 'Question: {"about": "cold"}\nA. no\n' in cold
    answers = got.json["answers"]
    assert answers["wet"] == {
        "type": "noul",
        "noul": pytest.approx(1 / 3),
        "probabilities": {"yes": pytest.approx(1 / 3), "no": pytest.approx(2 / 3)},
        "confidence": pytest.approx(0.2),
    }
    assert answers["wear"]["choice"] == "hat"
    assert set(answers["wear"]["probabilities"]) == {"coat", "hat"}
    assert answers["cold"]["score"] == pytest.approx(8 / 6)
    assert answers["cold"]["legend"] == {"0": "no", "1": "a bit", "2": "yes"}
    assert got.json["diagnostics"]["cold"]["label_mass"] == pytest.approx(0.6)
    assert got.json["object"] == "structured_decision"


@pytest.mark.parametrize(
    ("question", "param"),
    [
        ({"type": "noul", "criteria": {"maybe": "x"}}, "questions.q.criteria.maybe"),
        ({"type": "choice", "criteria": {"a": "x"}}, "questions.q.criteria"),
        ({"type": "score", "criteria": ["a"]}, "questions.q.criteria"),
        ({"type": "poem"}, "questions.q.type"),
        ({"type": "noul", "poem": 1}, "questions.q.poem"),
    ],
)
def test_and_names_what_is_wrong(question: object, param: str) -> None:
    error = decided({"state": "x", "questions": {"q": question}}, SYSTEM_ONE).refusal()
    assert error["param"] == param
    thinking = {"chat_template_kwargs": {"enable_thinking": True}}
    body = {"state": "x", "questions": {"q": {"type": "noul"}}, **thinking}
    error = decided(body, SYSTEM_ONE).refusal()
    assert error["param"] == "chat_template_kwargs.enable_thinking"
    many = {f"{n}": {"type": "noul"} for n in range(300)}
    body = {"state": "x", "instructions": "x" * 15_000, "questions": many}
    assert decided(body, SYSTEM_ONE).refusal()["param"] == "questions"
