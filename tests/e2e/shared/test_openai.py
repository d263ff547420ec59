"""The OpenAI SDK against a real `serve run`."""

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam

from tests.e2e.shared.models import LISTED

MESSAGES: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Hello there"}]


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


def test_a_generator_decides(client: openai.OpenAI) -> None:
    answer = client.decisions.create(
        model="tiny",
        input="The kettle is on.",
        questions=[{"type": "predicate", "instructions": "There will be tea."}],
    )
    assert answer.answers[0].type == "predicate"
    assert 0 < answer.answers[0].probability < 1
