"""The prompt and the engine request that a Messages request becomes."""

from typing import Any

import pytest

from deployments.text.tokens.tokenizer import TextTokenizer
from tests.anthropic.serving import HELLO, WEATHER, answer, asked, whole
from tests.ingress.engines import says
from tests.ingress.protocols.messages import COUNT, thinker

TOKENIZER = TextTokenizer(thinker())
HAIKU = {"type": "object", "properties": {"lines": {"type": "integer"}}, "required": ["lines"]}
JSON = {"type": "json_schema", "schema": HAIKU}


def prompt_of(**fields: object) -> str:
    """Returns the prompt's text, without the answer's own opening unless the fields ask for it."""
    ids = asked({"thinking": {"type": "adaptive"}, **fields}).prompt_ids
    return TOKENIZER.decode(ids, skip_special_tokens=False).replace("<|im_start|>", "|")


def said(*turns: tuple[str, object]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def text(value: str) -> dict[str, object]:
    return {"type": "text", "text": value}


def call(call_id: str = "toolu_1") -> dict[str, object]:
    return {"type": "tool_use", "id": call_id, "name": "weather", "input": {"city": "Rome"}}


def result(content: object = "sunny", call_id: str = "toolu_1", **more: object) -> Any:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def document(source: object, **more: object) -> dict[str, object]:
    return {"type": "document", "source": source, **more}


PLAIN = {"type": "text", "media_type": "text/plain", "data": "a"}
PARTS = {"type": "content", "content": [text("b"), text("c")]}
FOUND = {"type": "search_result", "source": "web", "title": "S", "content": [text("d"), text("e")]}

E = "<|im_end|>\n"
CALLED = f"|user\nHi{E}|assistant\n" + '<tool_call>weather{"city": "Rome"}#1</tool_call>' + E
OPEN = "|assistant\n"
PROMPTS: list[tuple[dict[str, object], str]] = [
    (said(("user", "Hi")), f"|user\nHi{E}{OPEN}"),
    (said(("user", [text("a"), text("b")])), f"|user\na\nb{E}{OPEN}"),
    (said(("user", "a"), ("user", "b")), f"|user\na\nb{E}{OPEN}"),
    (said(("user", "")), f"|user\n{E}{OPEN}"),
    (said(("assistant", "x"), ("user", "y")), f"|assistant\nx{E}|user\ny{E}{OPEN}"),
    (
        said(
            ("user", "a"), ("assistant", [text("b"), text("c")]), ("assistant", "d"), ("user", "e")
        ),
        f"|user\na{E}|assistant\nbc\nd{E}|user\ne{E}{OPEN}",
    ),
    (
        said(("user", "a"), ("assistant", []), ("user", "b")),
        f"|user\na{E}|assistant\n{E}|user\nb{E}{OPEN}",
    ),
    ({"system": "Be brief.", **said(("user", "a"))}, f"|system\nBe brief.{E}|user\na{E}{OPEN}"),
    ({"system": "", **said(("user", "a"))}, f"|user\na{E}{OPEN}"),
    (
        {"system": [text("One."), text("Two.")], **said(("user", "a"))},
        f"|system\nOne.\nTwo.{E}|user\na{E}{OPEN}",
    ),
    (
        {"system": "One.", **said(("system", [text("Two.")]), ("user", "a"), ("system", "Three."))},
        f"|system\nOne.\nTwo.{E}|user\na{E}|system\nThree.{E}{OPEN}",
    ),
    (
        said(
            ("user", "a"),
            (
                "assistant",
                [{"type": "thinking", "thinking": "hm", "signature": "any"}, text("b")],
            ),
            ("user", "c"),
        ),
        f"|user\na{E}|assistant\n<think>hm</think>b{E}|user\nc{E}{OPEN}",
    ),
    (
        said(
            ("user", "a"),
            ("assistant", [{"type": "thinking", "thinking": "", "signature": "theirs"}, text("b")]),
            ("user", "c"),
        ),
        f"|user\na{E}|assistant\nb{E}|user\nc{E}{OPEN}",
    ),
    (
        said(
            ("user", "a"),
            ("assistant", [{"type": "redacted_thinking", "data": "theirs"}, text("b")]),
            ("user", "c"),
        ),
        f"|user\na{E}|assistant\nb{E}|user\nc{E}{OPEN}",
    ),
    (
        {
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "max_tokens": 1025,
            **said(
                ("user", "a"),
                ("assistant", [{"type": "redacted_thinking", "data": "theirs"}, text("b")]),
            ),
        },
        f"|user\na{E}|assistant\nb",
    ),
    (
        said(("user", "Hi"), ("assistant", [call()]), ("user", [result(), text("So?")])),
        f"{CALLED}|tool\nsunny[weather#1]{E}|user\nSo?{E}{OPEN}",
    ),
    (
        said(("user", "Hi"), ("assistant", [call()]), ("user", [result([text("a"), text("b")])])),
        f"{CALLED}|tool\na\nb[weather#1]{E}{OPEN}",
    ),
    (
        said(("user", "Hi"), ("assistant", [call()]), ("user", [result(None)])),
        f"{CALLED}|tool\n[weather#1]{E}{OPEN}",
    ),
    (
        said(("user", "Hi"), ("assistant", [call()]), ("user", [result("no city", is_error=True)])),
        f"{CALLED}|tool\nError: no city[weather#1]{E}{OPEN}",
    ),
    (
        said(("user", "Hi"), ("assistant", [call()]), ("user", [result([], is_error=True)])),
        f"{CALLED}|tool\nError[weather#1]{E}{OPEN}",
    ),
    (
        said(
            ("user", "Hi"),
            ("assistant", [text("Look: "), call("a"), call("b")]),
            ("user", [result("1", "b")]),
            ("user", [result("2", "a")]),
        ),
        f"|user\nHi{E}|assistant\nLook: "
        '<tool_call>weather{"city": "Rome"}#a</tool_call>'
        '<tool_call>weather{"city": "Rome"}#b</tool_call>'
        f"{E}|tool\n1[weather#b]{E}|tool\n2[weather#a]{E}{OPEN}",
    ),
    (
        said(("user", [document(PLAIN), document(PARTS, title="T", context="C"), text("So?")])),
        f"|user\na\nT\nC\nb\nc\nSo?{E}{OPEN}",
    ),
    (
        said(("user", [{**FOUND, "citations": {"enabled": False}}, text("So?")])),
        f"|user\nS\nweb\nd\ne\nSo?{E}{OPEN}",
    ),
    (
        said(
            ("user", "Hi"),
            ("assistant", [call()]),
            ("user", [result([document({**PARTS, "content": "x"}), FOUND])]),
        ),
        f"{CALLED}|tool\nx\nS\nweb\nd\ne[weather#1]{E}{OPEN}",
    ),
    (said(("user", "Hi"), ("assistant", "The answer (")), f"|user\nHi{E}|assistant\nThe answer ("),
    (
        said(("user", "Hi"), ("assistant", "One,"), ("assistant", [text(" two,")])),
        f"|user\nHi{E}|assistant\nOne,\n two,",
    ),
    (said(("user", "Hi"), ("assistant", "")), f"|user\nHi{E}{OPEN}"),
    (said(("user", "Hi"), ("assistant", [])), f"|user\nHi{E}{OPEN}"),
    (
        {"tools": [WEATHER], **said(("user", "Hi"))},
        f"<tools>weatherOf a city.</tools>|user\nHi{E}{OPEN}",
    ),
    (
        {"tools": [{**WEATHER, "input_examples": [{"city": "K\u00f6ln"}]}], **said(("user", "Hi"))},
        '<tools>weatherOf a city.\nExamples of its input:\n{"city": "K\u00f6ln"}</tools>'
        f"|user\nHi{E}{OPEN}",
    ),
    (
        {"tools": [WEATHER], "tool_choice": {"type": "none"}, **said(("user", "Hi"))},
        f"|user\nHi{E}{OPEN}",
    ),
    (
        {"output_config": {"effort": "max"}, **said(("user", "Hi"))},
        f"<effort>high</effort>|user\nHi{E}{OPEN}",
    ),
    ({"thinking": None, **said(("user", "Hi"))}, f"|user\nHi{E}{OPEN}<think></think>"),
    (
        {"thinking": {"type": "disabled"}, **said(("user", "Hi"))},
        f"|user\nHi{E}{OPEN}<think></think>",
    ),
    (
        {
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "max_tokens": 1025,
            **said(("user", "Hi")),
        },
        f"|user\nHi{E}{OPEN}<think>\n",
    ),
]


@pytest.mark.parametrize(("fields", "prompt"), PROMPTS)
def test_messages_reach_the_template(fields: dict[str, object], prompt: str) -> None:
    assert prompt_of(**fields) == prompt
    fields = {"thinking": {"type": "adaptive"}, **fields}
    counted = {"model": "tiny", **{k: v for k, v in fields.items() if k != "max_tokens"}}
    response = answer(says("x"), counted, path=COUNT)
    assert response.json() == {"input_tokens": len(asked(fields).prompt_ids)}


def test_a_thought_has_a_budget() -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    budget = asked({"thinking": thinking, "max_tokens": 1025}).thinking
    assert budget is not None
    assert (budget.tokens, budget.open) == (1024, True)
    assert TOKENIZER.decode(budget.end_ids) == "</think>"
    assert asked({"thinking": {"type": "adaptive"}}).thinking is None


def test_an_answer_can_be_constrained_by_a_schema() -> None:
    grammar = asked({"output_config": {"format": JSON}}).grammar
    assert "lines" in grammar
    assert asked({"output_format": JSON}).grammar == grammar


HINT: dict[str, object] = {"cache_control": {"type": "ephemeral", "ttl": "5m"}}
NEUTRAL: list[dict[str, object]] = [
    HINT,
    {"system": [{**text("x"), **HINT}]},
    {"tools": [{**WEATHER, **HINT}]},
    {"tools": [{**WEATHER, "type": "custom", "strict": False, "defer_loading": False}]},
    {"tools": [{**WEATHER, "allowed_callers": ["direct"], "eager_input_streaming": True}]},
    {"tools": []},
    {"tools": None, "tool_choice": {"type": "none"}},
    said(("user", [{**text("x"), **HINT, "citations": None}])),
    {"metadata": {"user_id": "someone"}},
    {"metadata": {}},
    {"service_tier": "auto"},
    {"service_tier": "standard_only"},
    {"stop_sequences": []},
    {"stream": None},
    {"container": None, "thread": None, "diagnostics": None},
    {"mcp_servers": [], "context_management": {"edits": []}},
    {"speed": "standard", "inference_geo": "global"},
    {"output_config": {}},
    {"output_config": {"effort": "low"}},
    {"output_config": {"task_budget": None}},
    {"thinking": {"type": "adaptive", "display": "summarized"}},
    {"thinking": {"type": "adaptive", "block_binding": None}},
    {"thinking": {"type": "adaptive", "block_binding": {}}},
    {
        "messages": [
            {"role": "user", "content": "Hi"},
            {"role": "system", "content": "x", "clear_at": "never", "output_config": None},
        ]
    },
]


@pytest.mark.parametrize("fields", NEUTRAL)
def test_what_is_done_anyway_is_accepted(fields: dict[str, object]) -> None:
    message = whole(says("x"), **fields)
    assert [block["text"] for block in message["content"]] == ["x"]
    assert message["usage"]["service_tier"] == "standard"


def test_headers_of_beta_features_and_a_query_change_nothing() -> None:
    headers = {"anthropic-beta": "context-1m-2025-08-07", "anthropic-version": "2023-06-01"}
    response = answer(says("x"), HELLO, path="/v1/messages?beta=true", headers=headers)
    assert response.status_code == 200
