"""The tools of a response: those that the client runs are called, and all others are told of."""

import pytest

from tests.ingress.engines import says
from tests.openai.responses.responding import CALL, WEATHER, answered, whole


def test_what_openais_own_agent_sends_is_served() -> None:
    """It offers tools that OpenAI runs, or that have no schema, beside functions."""
    others = [{"type": "web_search"}, {"type": "custom", "name": "patch"}, {"type": "tool_search"}]
    body = whole(
        says("x"),
        instructions="You are an agent.",
        input=[
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        ],
        tools=[*others, WEATHER],
        tool_choice="auto",
        parallel_tool_calls=True,
        reasoning={"effort": None, "summary": "detailed"},
        store=False,
        include=["reasoning.encrypted_content"],
        prompt_cache_key="k",
        client_metadata={"x-codex-installation-id": "i"},
    )
    assert [tool["name"] for tool in body["tools"]] == ["patch", WEATHER["name"]]


def test_the_answer_and_the_log_say_what_is_not_in_the_prompt(
    caplog: pytest.LogCaptureFixture,
) -> None:
    item = {**additional({"type": "web_search_preview"}), "id": "t"}
    question = {"role": "user", "content": "Hi"}
    for stream in (False, True):
        answer = answered(
            says("x"),
            tools=[WEATHER, {"type": "web_search"}],
            input=[item, question],
            stream=stream,
        )
        told = answer.headers["x-manta-warning"]
        assert told == (
            "tools[1] of type web_search is not in the prompt; "
            "input[0].tools[0] of type web_search_preview is not in the prompt"
        )
        assert told in caplog.text
        caplog.clear()
    assert "x-manta-warning" not in answered(says("x"), tools=[WEATHER]).headers


@pytest.mark.parametrize(("names", "calls"), [(["weather"], True), ([], False)])
def test_a_choice_may_allow_what_only_openai_runs(names: list[str], calls: bool) -> None:
    search = {"type": "web_search"}
    functions = [{"type": "function", "name": name} for name in names]
    choice = {"type": "allowed_tools", "mode": "auto", "tools": [search, *functions]}
    body = whole(says(CALL), tools=[search, WEATHER], tool_choice=choice)
    assert (body["output"][0]["type"] == "function_call") == calls
    assert body["tool_choice"] == choice


def additional(*tools: object) -> dict[str, object]:
    return {"type": "additional_tools", "role": "developer", "tools": tools}


def test_tools_that_come_as_items_are_tools() -> None:
    clock = {"type": "function", "name": "clock", "strict": True}
    again = {**WEATHER, "description": "Tells it better."}
    body = whole(
        says(CALL),
        tools=[WEATHER, {"type": "web_search_2025_08_26"}],
        input=[
            additional({"type": "tool_search"}, clock),
            {"role": "user", "content": "Hi"},
            additional(again),
        ],
    )
    assert [tool["name"] for tool in body["tools"]] == ["clock", "weather"]
    assert body["tools"][1]["description"] == "Tells it better."
    assert body["output"][0]["type"] == "function_call"
