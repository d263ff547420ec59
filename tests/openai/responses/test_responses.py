"""Responses match the SDK's types, unary and streamed, with items in order."""

from dataclasses import replace
from typing import Any

import pytest

from deployments.contract.errors import ErrorKind, RequestError
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import fails, plays, says
from tests.openai.responses.responding import (
    CALL,
    HELLO,
    ROOMY,
    THINKER,
    WEATHER,
    asked,
    prompt_of,
    streamed,
    whole,
)
from tests.text.cards import CHAT_TEMPLATE, card

TOKENIZER = TextTokenizer(card())
THOUGHT = "<think>\nHm, Stra\u00dfe?\n</think>\n\n"
LOGPROBS = ["message.output_text.logprobs"]


def kinds(body: Any) -> list[str]:
    return [item["type"] for item in body["output"]]


def test_the_unary_body_has_every_field() -> None:
    body = whole(says("Hi."), instructions="Be brief.", metadata={"a": "b"}, temperature=0)
    output_tokens = len(TOKENIZER.encode("Hi.", False)) + 1
    assert body["id"].startswith("resp_")
    assert body["object"] == "response"
    assert body["model"] == "tiny"
    assert body["status"] == "completed"
    assert body["completed_at"] >= body["created_at"] > 0
    assert (body["error"], body["incomplete_details"]) == (None, None)
    assert body["instructions"] == "Be brief."
    assert body["metadata"] == {"a": "b"}
    assert (body["temperature"], body["top_p"]) == (0, 1)
    assert (body["tools"], body["tool_choice"], body["parallel_tool_calls"]) == ([], "auto", True)
    assert body["text"]["format"] == {"type": "text"}
    [message] = body["output"]
    assert message["id"].startswith("msg_")
    assert message["status"] == "completed"
    part = {"type": "output_text", "text": "Hi.", "annotations": [], "logprobs": []}
    assert message["content"] == [part]
    usage = body["usage"]
    assert usage["output_tokens"] == output_tokens
    assert usage["total_tokens"] == usage["input_tokens"] + output_tokens
    assert usage["input_tokens_details"] == {"cached_tokens": 4, "cache_write_tokens": 0}
    assert usage["output_tokens_details"] == {"reasoning_tokens": 0}


def test_a_stream_begins_and_ends_as_openais() -> None:
    events = [event["type"] for event in streamed(says("Hi", size=9))]
    assert events == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_items_come_in_the_order_of_speech() -> None:
    body = whole(says(f"{THOUGHT}One. {CALL}\nTwo."), tools=[WEATHER])
    assert kinds(body) == ["reasoning", "message", "function_call", "message"]
    thought, _, call, last = body["output"]
    [told] = thought["content"]
    assert (told["type"], thought["summary"]) == ("reasoning_text", [])
    assert "Stra\u00dfe" in told["text"]
    assert call["name"] == "weather"
    assert call["arguments"] == '{"city": "K\u00f6ln"}'
    assert call["call_id"] != call["id"]
    assert "Two." in last["content"][0]["text"]
    assert body["usage"]["output_tokens_details"]["reasoning_tokens"] > 0


def test_an_answer_of_nothing_is_an_empty_message() -> None:
    [message] = whole(says(""))["output"]
    assert message["content"][0]["text"] == ""


def test_what_a_limit_cuts_is_incomplete() -> None:
    body = whole(says(f"One. {CALL}"), tools=[WEATHER], max_output_tokens=45)
    assert kinds(body) == ["message", "function_call"]
    assert body["status"] == "incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    assert body["completed_at"] is None
    assert [item["status"] for item in body["output"]] == ["completed", "incomplete"]


def test_a_call_that_a_stop_string_broke_is_incomplete() -> None:
    body = whole(says(CALL), tools=[WEATHER], stop=["ln"])
    assert (body["status"], body["output"][0]["status"]) == ("completed", "incomplete")
    done = streamed(says(CALL), tools=[WEATHER], stop=["ln"])[-2]
    assert (done["type"], done["item"]["status"]) == ("response.output_item.done", "incomplete")


def test_a_cut_stream_ends_with_incomplete() -> None:
    assert streamed(says("Hello world"), max_output_tokens=2)[-1]["type"] == "response.incomplete"


def test_a_failure_in_mid_stream_is_a_failed_response() -> None:
    error = RequestError(ErrorKind.MODEL_REPLACED, "The model was replaced")
    *events, last = streamed(fails(error, after="Hello"))
    assert events[-1]["type"] == "response.output_text.delta"
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["message"] == "The model was replaced"
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_logprobs_come_with_the_words() -> None:
    ids = TOKENIZER.encode("Hello world", False)
    body = whole(plays(ids), include=LOGPROBS, top_logprobs=2)
    entries = body["output"][0]["content"][0]["logprobs"]
    assert [bytes(entry["bytes"]) for entry in entries] == list(map(TOKENIZER.token_bytes, ids))
    assert all(len(entry["top_logprobs"]) == 2 for entry in entries)


def constrained(**fields: object) -> GenerationRequest:
    return asked({**HELLO, **fields})


def test_the_models_own_sampling_fills_what_is_left_open() -> None:
    defaults = SamplingParams(temperature=0.25, top_p=0.5, typical_p=0.5)
    body = whole(says("x"), card(sampling=defaults))
    assert (body["temperature"], body["top_p"]) == (0.25, 0.5)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"text": {"format": {"type": "json_object"}}}, '"object"'),
        (
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {"const": 5}}}},
            '"const": 5',
        ),
    ],
)
def test_what_is_required_of_an_answer_constrains_it(
    fields: dict[str, object], expected: str
) -> None:
    request = asked({**HELLO, **fields})
    assert expected in request.grammar.replace("\\", "")


def test_only_allowed_tools_are_callable_and_all_are_in_the_prompt() -> None:
    other = {**WEATHER, "name": "other"}
    choice = {
        "type": "allowed_tools",
        "mode": "auto",
        "tools": [{"type": "function", "name": "other"}],
    }
    fields: dict[str, object] = {"tools": [WEATHER, other], "tool_choice": choice}
    body = whole(says(CALL), **fields)
    assert kinds(body) == ["message"]
    assert body["tool_choice"] == choice
    prompt = prompt_of(asked({**HELLO, **fields}))
    assert '"weather"' in prompt
    assert '"other"' in prompt


def test_effort_reaches_a_model_that_thinks() -> None:
    def prompt(effort: str) -> str:
        body = {**HELLO, "reasoning": {"effort": effort, "summary": "auto"}}
        return prompt_of(asked(body, THINKER), THINKER)

    assert prompt("high").endswith("assistant\nhigh")
    assert prompt("none").endswith("<think></think>")


@pytest.mark.parametrize("verbosity", ["low", "medium", "high"])
def test_verbosity_reaches_a_template_that_knows_it(verbosity: str) -> None:
    knows = replace(ROOMY, chat_template=f"{CHAT_TEMPLATE}{{{{ verbosity }}}}")
    body = {**HELLO, "text": {"verbosity": verbosity}}
    assert prompt_of(asked(body, knows), knows).endswith(verbosity)
    assert whole(says("x"), text={"verbosity": verbosity})["text"]["verbosity"] == verbosity


def test_identifiers_and_what_is_done_anyway_are_accepted() -> None:
    body = whole(
        says("x"),
        user="u",
        safety_identifier="s",
        prompt_cache_key="k",
        prompt_cache_retention="24h",
        prompt_cache_options={"prewarm": False, "comparison_response_id": None},
        service_tier="flex",
        background=False,
        background_options=None,
        truncation="disabled",
        include=["reasoning.encrypted_content"],
        text={"verbosity": "medium"},
        max_tool_calls=3,
        conversation=None,
    )
    assert (body["user"], body["safety_identifier"], body["prompt_cache_key"]) == ("u", "s", "k")
    assert (body["service_tier"], body["max_tool_calls"]) == ("default", 3)
