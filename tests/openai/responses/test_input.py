"""The prompt of a request: its own items, and those of earlier responses."""

from dataclasses import replace
from typing import Any

import httpx
import pytest

from deployments.openai.fields.tool_arguments import INVALID
from deployments.openai.responses.items import KEPT
from tests.ingress.engines import says
from tests.openai.responses.responding import (
    CALL,
    HELLO,
    RESPONSES,
    ROOMY,
    THINKER,
    WEATHER,
    asked,
    prompt_of,
    talking,
)
from tests.text.cards import CHAT_TEMPLATE, card

# As a model's that was taught tools: what is said of them reaches the template as it is.
TOOLED = replace(
    ROOMY,
    dialect="hermes",
    chat_template=CHAT_TEMPLATE + "{% if tools %}{{ tools | length }}{% endif %}",
)
NAMED = replace(
    TOOLED,
    chat_template=(TOOLED.chat_template or "").replace("m.role }}", "m.role }} {{ m.name }}"),
)


def rendered(items: list[Any], model: Any = TOOLED, **fields: object) -> str:
    request = asked({"input": items, **fields}, model)
    return prompt_of(request, model)


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


def call(call_id: str, arguments: str = '{"a": 1}') -> dict[str, object]:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": arguments}


def result(call_id: str, output: object) -> dict[str, object]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def said(*texts: str) -> dict[str, object]:
    content = [{"type": "output_text", "text": text, "annotations": []} for text in texts]
    return {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def test_a_string_is_what_the_user_says() -> None:
    prompt = prompt_of(asked({"input": "Hello"}))
    assert prompt == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def test_instructions_come_first() -> None:
    prompt = rendered([user("x")], instructions="Be brief.", chat_template_kwargs={"shout": True})
    assert prompt.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n")
    assert "LOUD" in prompt


def test_items_of_every_kind_reach_the_template() -> None:
    parts = [{"type": "input_text", "text": text} for text in "ab"]
    prompt = rendered(
        [
            {"type": "message", "role": "developer", "content": "Be kind."},
            user(parts),
            said("One", "two"),
            call("c1"),
            call("c2", "{}"),
            result("c1", "42"),
            result("c2", parts),
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        ]
    )
    assert prompt == (
        "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n"
        '<|im_start|>assistant\nOne\ntwof={"a": 1}f={}<|im_end|>\n'
        "<|im_start|>tool\n42<|im_end|>\n<|im_start|>tool\na\nb<|im_end|>\n"
        "<|im_start|>assistant\nNo.<|im_end|>\n<|im_start|>assistant\n"
    )


def test_an_empty_answer_comes_again() -> None:
    empty = {"type": "message", "role": "assistant", "content": []}
    assert rendered([user("x"), empty, user("y")]) == rendered([user("x"), said(""), user("y")])


def test_what_an_answer_cited_comes_again() -> None:
    """The citations are of a search that passes over."""
    cited = [{"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}]
    part = {"type": "output_text", "text": "So.", "annotations": cited}
    answer = {"type": "message", "role": "assistant", "content": [part]}
    assert rendered([user("x"), answer, user("y")]) == rendered([user("x"), said("So."), user("y")])
    listed = KEPT.validate_python(answer).listed()
    assert listed["content"] == [{**part, "logprobs": []}]


def test_two_messages_of_the_assistant_are_two_turns() -> None:
    assert rendered([said("One."), said("Two.")]).count("<|im_start|>assistant") == 3


def test_words_around_a_call_are_one_turn() -> None:
    prompt = rendered([said("One."), call("c1"), said("Two."), result("c1", "42")])
    assert '<|im_start|>assistant\nOne.\nTwo.f={"a": 1}<|im_end|>\n<|im_start|>tool' in prompt


def test_thoughts_before_one_message_are_its_thought() -> None:
    first, second = (
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}
        for text in ("Hm.", "Well.")
    )
    assert "<think>Hm.\nWell.</think>Yes." in rendered([first, second, said("Yes.")], THINKER)


def test_a_result_has_the_name_of_its_call() -> None:
    assert "<|im_start|>tool f\n42" in rendered([call("c1"), result("c1", "42")], NAMED)


def test_what_is_said_of_callers_is_what_is_done_anyway() -> None:
    direct = {"caller": {"type": "direct"}, "async": False}
    plain, told = (
        [{**call("c1"), **more}, {**result("c1", "42"), **more}] for more in ({}, direct)
    )
    allowed = {**WEATHER, "allowed_callers": ["direct"], "async": False}
    assert rendered(told, tools=[allowed]) == rendered(plain, tools=[WEATHER])


def test_the_prompt_has_the_schema_of_a_tools_output() -> None:
    template = f"{CHAT_TEMPLATE}{{{{ tools[0].function.description }}}}"
    model = replace(ROOMY, dialect="hermes", chat_template=template)
    tool = {**WEATHER, "output_schema": {"type": "integer"}}
    assert 'Tells the weather.\nSchema of its output:\n{"type": "integer"}' in rendered(
        [user("x")], model, tools=[tool]
    )


def test_thoughts_go_back_with_the_words_they_led_to() -> None:
    thought = {"type": "reasoning_text", "text": "Hm."}
    summary = {"type": "summary_text", "text": "short"}
    item = {"type": "reasoning", "id": "rs_1", "summary": [summary], "content": [thought]}
    prompt = rendered([user("x"), item, said("Yes.")], THINKER)
    assert "<|im_start|>assistant\n<think>Hm.</think>Yes.<|im_end|>" in prompt


def test_a_summary_stands_for_a_thought_that_is_not_there() -> None:
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}]}
    assert "<think>short</think>Yes." in rendered([item, said("Yes.")], THINKER)


async def conversation(*bodies: dict[str, Any], script: Any, model: Any = ROOMY) -> list[str]:
    """The prompts of requests that each go on with the one before."""
    async with talking(script, model) as (ask, engine):
        last: dict[str, Any] = {}
        for body in bodies:
            response: httpx.Response = await ask({**body, **last})
            assert response.status_code == 200, response.text
            last = {"previous_response_id": response.json()["id"]}
        return [prompt_of(request, model) for request in engine.requests]


GARBLED = """<tool_call>
<function=forecast>
<parameter=days>
2
</parametr>
</function>
</tool_call>"""
DAYS = {"type": "object", "properties": {"days": {"type": "integer"}}}
FORECAST = {"type": "function", "name": "forecast", "parameters": DAYS}


async def test_a_call_that_the_model_garbled_can_be_gone_on_with() -> None:
    first = {"input": "Hot?", "tools": [FORECAST]}
    model = replace(TOOLED, dialect="qwen3_coder")
    _, second = await conversation(first, {"input": "Well?"}, script=says(GARBLED), model=model)
    assert f'forecast={{"{INVALID}": ' in second


async def test_a_conversation_goes_on_from_the_store() -> None:
    first, second, third = await conversation(
        {"input": "One?", "instructions": "Be brief."},
        {"input": [user("Two?")]},
        {"input": "Three?", "instructions": "Be kind."},
        script=says("Yes."),
    )
    assert first.startswith("<|im_start|>system\nBe brief.")
    assert second == (
        "<|im_start|>user\nOne?<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n"
        "<|im_start|>user\nTwo?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert third.startswith("<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nOne?")
    assert third.endswith("Three?<|im_end|>\n<|im_start|>assistant\n")


async def test_a_call_is_answered_from_the_store() -> None:
    async with talking(says(CALL), TOOLED) as (ask, engine):
        tools = {"tools": [WEATHER]}
        first = (await ask({**HELLO, **tools})).json()
        [spoken] = first["output"]
        items = [result(spoken["call_id"], "sunny")]
        body = {"previous_response_id": first["id"], "input": items, **tools}
        assert (await ask(body)).status_code == 200
        prompt = prompt_of(engine.requests[1], TOOLED)
    assert 'weather={"city": "K\u00f6ln"}<|im_end|>\n<|im_start|>tool\nsunny' in prompt


async def test_tools_that_came_as_items_are_those_of_the_conversation() -> None:
    item = {"type": "additional_tools", "role": "developer", "tools": [WEATHER]}
    again = {**WEATHER, "description": "Tells it better."}
    choice = {"type": "function", "name": "weather"}
    async with talking(says(CALL)) as (ask, _):
        first = (await ask({"input": [item, user("One?")]})).json()
        more = {"input": "Two?", "previous_response_id": first["id"]}
        second = await ask({**more, "tools": [{**WEATHER, "name": "other"}], "tool_choice": choice})
        assert [tool["name"] for tool in second.json()["tools"]] == ["other", "weather"]
        third = (await ask({**more, "input": [{**item, "tools": [again]}]})).json()
        assert [tool["description"] for tool in third["tools"]] == ["Tells it better."]
        logprobs = await ask({**more, "include": ["message.output_text.logprobs"]})
        assert logprobs.json()["error"]["param"] == "include"
        alone = await ask({"input": "Two?", "tool_choice": choice})
        assert alone.json()["error"]["param"] == "tool_choice.name"


async def test_a_stateless_client_sends_the_output_back() -> None:
    async with talking(says("Yes."), ROOMY) as (ask, engine):
        for store in (True, False):
            first = (await ask({"input": "One?", "tools": [WEATHER], "store": store})).json()
            items = [user("One?"), *first["output"], user("Two?")]
            assert (await ask({"input": items, "store": store})).status_code == 200
        stored, stateless = [prompt_of(request) for request in engine.requests[1::2]]
    assert stored == stateless
    assert "Yes.<|im_end|>\n<|im_start|>user\nTwo?" in stored


async def test_a_reference_stands_for_its_item() -> None:
    async with talking(says("Yes.")) as (ask, engine):
        [item] = (await ask({"input": "One?"})).json()["output"]
        for reference in ({"type": "item_reference", "id": item["id"]}, {"id": item["id"]}):
            assert (await ask({"input": [user("x"), reference]})).status_code == 200
        assert engine.requests[1].prompt_ids == engine.requests[2].prompt_ids
        assert "<|im_start|>assistant\nYes.<|im_end|>\n" in prompt_of(engine.requests[2])


LONG = [user("a " * 40), said("b " * 40), user("c " * 40), said("d"), user("e")]


def test_truncation_drops_the_oldest_turns_and_keeps_instructions() -> None:
    small = card(context_length=220)
    fields: dict[str, object] = {"truncation": "auto", "instructions": "Be brief."}
    assert "a a" in rendered(LONG[:2], small, **fields)
    prompt = rendered(LONG, small, **fields)
    assert prompt.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nc c")
    assert prompt.endswith("e<|im_end|>\n<|im_start|>assistant\n")


@pytest.mark.parametrize("truncation", ["disabled", "auto"])
async def test_what_can_not_be_made_to_fit_is_refused(truncation: str) -> None:
    items = [user("x")] if truncation == "auto" else LONG
    items = [*items, user("a " * 400)] if truncation == "auto" else items
    async with talking(says("x"), card(context_length=220)) as (ask, _):
        response = await ask({"input": items, "truncation": truncation}, RESPONSES)
    assert response.status_code == 400
    error = response.json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", "input")
