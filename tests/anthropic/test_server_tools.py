"""Tools that only Anthropic runs are left out of the prompt, and what needs one is refused."""

import pytest

from deployments.text.tokens.tokenizer import TextTokenizer
from tests.anthropic.serving import HELLO, WEATHER, answer, asked, whole
from tests.ingress.engines import says
from tests.ingress.protocols.messages import thinker

UPDATES = {"thinking": {"type": "adaptive", "display": "updates"}}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


def prompt_of(**fields: object) -> str:
    return TextTokenizer(thinker()).decode(asked(fields).prompt_ids)


def said(*turns: tuple[str, object]) -> dict[str, object]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def test_the_prompt_has_no_tools_that_only_anthropic_runs() -> None:
    names = ("web_search", "web_fetch", "code_execution", "advisor")
    tools = [{"type": f"{name}_20250825", "name": name, "max_uses": 5} for name in names]
    hello = said(("user", "Hi"))
    alone, beside = prompt_of(tools=tools, **hello), prompt_of(tools=[*tools, WEATHER], **hello)
    assert alone == prompt_of(**hello)
    assert beside == prompt_of(tools=[WEATHER], **hello)
    assert asked({"tools": tools, "tool_choice": {"type": "auto"}}).grammar == ""


def test_the_answer_says_what_is_not_in_the_prompt() -> None:
    for stream in (False, True):
        body = {**HELLO, "tools": [WEATHER, SEARCH], "stream": stream}
        told = answer(says("x"), body).headers["x-manta-warning"]
        assert told == "tools[1] of type web_search_20250305 is not in the prompt"


def test_a_deferred_tool_that_only_anthropics_search_would_find_is_there_from_the_start() -> None:
    search = {"type": "tool_search_tool_bm25", "name": "tool_search_tool_bm25"}
    deferred = {**WEATHER, "defer_loading": True}
    hello = said(("user", "Hi"))
    assert prompt_of(tools=[search, deferred], **hello) == prompt_of(tools=[WEATHER], **hello)


def test_a_deferred_tool_is_in_the_prompt_once_a_result_has_found_it() -> None:
    search = {"name": "search", "input_schema": {"type": "object"}}
    tools = [search, {**WEATHER, "defer_loading": True}]
    history = said(
        ("user", "Hi"),
        ("assistant", [{"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}}]),
        (
            "user",
            [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "tool_reference", "tool_name": WEATHER["name"]}],
                }
            ],
        ),
    )
    assert str(WEATHER["description"]) not in prompt_of(tools=tools, **said(("user", "Hi")))
    assert str(WEATHER["description"]) in prompt_of(tools=tools, **history)
    forced = asked({"tools": tools, "tool_choice": {"type": "tool", "name": "weather"}, **history})
    assert "weather" in forced.grammar


SEARCHED = [
    {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}},
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"type": "web_search_result", "url": "u", "title": "t"}],
    },
    {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "f", "server_name": "s", "input": {}},
    {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": []},
    {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_2", "content": {}},
    {"type": "mcp_tool_listing", "mcp_server_name": "s", "tools": []},
    {"type": "fallback", "from": {"model": "a"}, "to": {"model": "b"}, "trigger": None},
]
CITED = {"type": "text", "text": "So it is.", "citations": [{"type": "web_search_result_location"}]}


def test_what_anthropic_has_run_earlier_passes_over_and_is_told() -> None:
    turns = [("user", "Hi"), ("assistant", [*SEARCHED, CITED]), ("user", "And?")]
    plain = said(turns[0], ("assistant", "So it is."), turns[2])
    assert prompt_of(**said(*turns)) == prompt_of(**plain)
    told = answer(says("x"), {**HELLO, **said(*turns)}).headers["x-manta-warning"]
    assert told.startswith("messages[1].content[0] of type server_tool_use is not in the prompt; ")
    assert told.count("is not in the prompt") == len(SEARCHED)
    assert "thinking" in str(whole(says("<think>a</think>b"), **UPDATES)["content"])


def test_a_tool_that_anthropics_search_has_found_is_loaded() -> None:
    found = {"type": "tool_reference", "tool_name": WEATHER["name"]}
    content = {"type": "tool_search_tool_search_result", "tool_references": [found]}
    result = {"type": "tool_search_tool_result", "tool_use_id": "s", "content": content}
    history = said(("user", "Hi"), ("assistant", [result, CITED]), ("user", "And?"))
    tools = [{**WEATHER, "defer_loading": True}]
    assert str(WEATHER["description"]) in prompt_of(tools=tools, **history)


WRONG: list[tuple[dict[str, object], str]] = [
    ({"tools": [{**WEATHER, "type": "web_search_x"}]}, "web_search_x"),
    ({"tools": [{**WEATHER, "type": "mcp_toolset"}]}, "mcp_toolset"),
    ({"tools": [{"type": "web_search_20250305"}]}, "tools[0].name"),
    ({"tools": [SEARCH, {**WEATHER, "name": "web_search"}]}, "tools"),
    ({"tools": [SEARCH, {**WEATHER, "input_schema": {}}]}, "tools[1].input_schema"),
    ({"tools": [SEARCH], "tool_choice": {"type": "any"}}, "tool_choice"),
    (
        {"tools": [SEARCH, WEATHER], "tool_choice": {"type": "tool", "name": "web_search"}},
        "tool_choice.name",
    ),
]


@pytest.mark.parametrize(("fields", "named"), WRONG)
def test_what_needs_such_a_tool_is_refused(fields: dict[str, object], named: str) -> None:
    response = answer(says("x"), {**HELLO, **fields})
    assert response.status_code == 400, response.text
    assert named in response.json()["error"]["message"]
