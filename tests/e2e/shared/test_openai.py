"""The OpenAI SDK against a real `serve run`."""

import openai
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageParam
from pydantic import TypeAdapter

from tests.e2e.server import Server
from tests.e2e.shared.models import LISTED

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello there"}]


def test_a_stream_folds_to_the_unary_answer(client: openai.OpenAI) -> None:
    options = {"model": "tiny", "messages": MESSAGES, "max_tokens": 40, "seed": 7}
    unary = client.chat.completions.create(**options)  # type: ignore[call-overload]
    stream = client.chat.completions.create(  # type: ignore[call-overload]
        **options, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == unary.choices[0].message.content
    assert chunks[0].choices[0].delta.role == "assistant"
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert [reason for reason in reasons if reason] == [unary.choices[0].finish_reason]
    assert chunks[-1].usage.completion_tokens == unary.usage.completion_tokens
    assert chunks[-1].usage.total_tokens == unary.usage.total_tokens


def test_answers_fit_the_sdks_types_strictly(server: Server, client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model="tiny",
        messages=MESSAGES,
        max_tokens=5,
        logprobs=True,
        top_logprobs=2,
    )
    TypeAdapter(ChatCompletion).validate_json(raw.text, strict=True)
    plain = client.completions.with_raw_response.create(model="tiny", prompt="a", max_tokens=5)
    TypeAdapter(Completion).validate_json(plain.text, strict=True)
    body = {"messages": MESSAGES, "max_tokens": 5, "stream": True}
    with client._client.stream("POST", f"{server.url}/v1/chat/completions", json=body) as answer:
        lines = [line for line in answer.iter_lines() if line.startswith("data: ")]
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        TypeAdapter(ChatCompletionChunk).validate_json(line.removeprefix("data: "), strict=True)


def test_several_choices_and_prompts_come_apart(client: openai.OpenAI) -> None:
    chat = client.chat.completions.create(
        model="tiny",
        messages=MESSAGES,
        max_tokens=8,
        n=3,
        seed=1,
    )
    assert [choice.index for choice in chat.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in chat.choices}) == 3
    batch = client.completions.create(
        model="tiny", prompt=["one", "two"], max_tokens=8, temperature=0
    )
    alone = [
        client.completions.create(model="tiny", prompt=prompt, max_tokens=8, temperature=0)
        for prompt in ("one", "two")
    ]
    assert [c.text for c in batch.choices] == [answer.choices[0].text for answer in alone]


def test_a_stop_string_is_not_part_of_the_answer(client: openai.OpenAI) -> None:
    options = {"model": "tiny", "prompt": "stop here", "max_tokens": 40, "temperature": 0}
    whole = client.completions.create(**options).choices[0].text  # type: ignore[call-overload]
    stop = whole[10:13]
    cut = client.completions.create(**options, stop=stop).choices[0]  # type: ignore[call-overload]
    assert cut.text == whole[: whole.index(stop)]
    assert cut.finish_reason == "stop"


def test_the_models_are_listed_and_found(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == list(LISTED)
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("huge")


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"messages": MESSAGES, "model": "huge"}, 404, "model"),
        ({"messages": MESSAGES, "max_tokens": "many"}, 400, "max_tokens"),
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "user", "content": "a" * 3000}]}, 400, "messages"),
        ({"messages": MESSAGES, "tools": [{"type": "function"}]}, 400, "tools[0].function"),
        ({"messages": MESSAGES, "colour": "red"}, 400, "colour"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(
    server: Server, client: openai.OpenAI, body: dict[str, object], status: int, param: str
) -> None:
    answer = client._client.post(f"{server.url}/v1/chat/completions", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (status, param)
    assert error["message"]
    assert client.models.list().data


def test_a_generator_decides(client: openai.OpenAI) -> None:
    answer = client.decisions.create(
        model="tiny",
        input="The kettle is on.",
        questions=[{"type": "predicate", "instructions": "There will be tea."}],
    )
    assert answer.answers[0].type == "predicate"
    assert 0 < answer.answers[0].probability < 1
