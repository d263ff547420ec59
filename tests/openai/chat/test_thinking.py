"""Thinking in chat: it is parsed, counted, and requested by effort and budget."""

from dataclasses import replace
from typing import Any

import pytest

from deployments.contract.requests import GenerationRequest
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import says
from tests.openai.chat.chatting import THINKS, asked_of, refused, thinker, whole
from tests.text.cards import card

TOKENIZER = TextTokenizer(card())
THOUGHT = "<think>\nSo 2 < 3 \u65e5.\n</think>\n\nYes."


def test_thoughts_come_in_a_field_of_their_own_and_are_counted() -> None:
    body = whole(says(THOUGHT), thinker())
    message = body["choices"][0]["message"]
    assert message["reasoning_content"].strip() == "So 2 < 3 \u65e5."
    assert message["content"] == "Yes."
    details = body["usage"]["completion_tokens_details"]
    assert 0 < details["reasoning_tokens"] < body["usage"]["completion_tokens"]


@pytest.mark.parametrize(("form", "split"), [("none", False), ("auto", True), ("deepseek", True)])
def test_thoughts_stay_in_the_content_if_so_wanted(form: str, split: bool) -> None:
    message = whole(says(THOUGHT), thinker(), reasoning_format=form)["choices"][0]["message"]
    assert ("reasoning_content" in message) == split
    assert message["content"] == ("Yes." if split else THOUGHT)


def prompt(**fields: object) -> str:
    return TOKENIZER.decode(request_for(**fields).prompt_ids, skip_special_tokens=False)


def request_for(**fields: object) -> GenerationRequest:
    [request] = asked_of(thinker(), **fields)
    return request


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, ""),
        ({"reasoning_effort": "none"}, "[thinking=False]"),
        ({"reasoning_effort": "minimal"}, "[effort=minimal]"),
        ({"reasoning_effort": "low"}, "[thinking=True][effort=low]"),
        ({"reasoning_effort": "max"}, "[thinking=True][effort=max]"),
        ({"thinking": {"type": "enabled"}}, "[thinking=True]"),
        ({"thinking": {"type": "disabled"}}, "[thinking=False]"),
        (
            {"thinking": {"type": "enabled"}, "reasoning_effort": "high"},
            "[thinking=True][effort=high]",
        ),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "[thinking=False]"),
        ({"chat_template_args": {"enable_thinking": False}}, "[thinking=False]"),
    ],
)
def test_the_template_gets_the_requested_effort(fields: dict[str, Any], told: str) -> None:
    assert prompt(**fields) == prompt() + told


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking_token_budget": 12},
        {"thinking": {"type": "enabled", "budget_tokens": 12}},
        {"nvext": {"max_thinking_tokens": 12}},
        {"nvext": {"max_thinking_tokens": 12}, "thinking_token_budget": 12},
    ],
)
def test_a_budget_reaches_the_engine_with_the_marks(fields: dict[str, Any]) -> None:
    thinking = request_for(**fields).thinking
    assert thinking is not None
    assert thinking.tokens == 12
    assert TOKENIZER.decode(thinking.end_ids) == "</think>"


@pytest.mark.parametrize(
    "fields", [{"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}]
)
def test_a_model_whose_template_closes_no_thought_may_not_think_either(
    fields: dict[str, Any],
) -> None:
    """Told or not, it could open one by itself."""
    without_switch = (
        "Draft your thinking process first."
        "{% for m in messages %}{{ m.thinking }}{{ m.content }}"
        "{% if m.a %}{{ raise_exception('Cannot pass thinking in it') }}{% endif %}"
        "{% endfor %}<think>"
    )
    for template in (without_switch, THINKS):
        [request] = asked_of(thinker(template), **fields)
        assert request.thinking is not None
        assert request.thinking.tokens == 0
    closed = THINKS + "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
    [request] = asked_of(thinker(closed), **fields)
    assert request.thinking is None


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"thinking": {"type": "enabled"}}, "thinking"),
        ({"thinking_token_budget": 1}, "thinking_token_budget"),
    ],
)
def test_a_model_without_thoughts_refuses_to_think(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields)["param"] == param
    assert whole(says("x"), reasoning_effort="minimal")
    assert whole(says("x"), thinking={"type": "disabled"})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        (
            {"thinking": {"type": "enabled", "budget_tokens": 1}, "thinking_token_budget": 2},
            "thinking.budget_tokens",
        ),
        ({"thinking": {"type": "enabled"}, "reasoning_effort": "none"}, "thinking"),
        (
            {"thinking_token_budget": 2, "nvext": {"max_thinking_tokens": 3}},
            "nvext.max_thinking_tokens",
        ),
    ],
)
def test_two_words_that_differ_are_refused(fields: dict[str, Any], param: str) -> None:
    assert refused(thinker(), **fields)["param"] == param


def test_thoughts_of_earlier_turns_are_taken_by_both_names() -> None:
    template = "{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}{% endfor %}<think>"
    for name in ("reasoning_content", "reasoning"):
        turn = {"role": "assistant", "content": "b", name: "a"}
        [request] = asked_of(thinker(template), messages=[turn])
        assert TOKENIZER.decode(request.prompt_ids) == "ab<think>"


def test_a_call_ends_a_thought_where_the_model_writes_it_so() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    model = replace(thinker(THINKS + "{% if tools %}{% endif %}"), dialect="kimi")
    fields = {"messages": [{"role": "user", "content": "Hi"}], "thinking_token_budget": 9}
    [free], [calling] = asked_of(model, **fields), asked_of(model, **fields, tools=tools)
    assert free.thinking is not None
    assert free.thinking.break_ids == ()
    assert calling.thinking is not None
    [ids] = calling.thinking.break_ids
    assert TOKENIZER.decode(ids, False) == "<|tool_calls_section_begin|>"
