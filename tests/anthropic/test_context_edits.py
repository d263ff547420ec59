"""Context management: older thinking and tool results leave the prompt, and the answer says so."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from deployments.contract.model_card import ModelCard
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.anthropic.serving import HELLO, WEATHER, answer, asked, sdk, served, streamed, whole
from tests.ingress.engines import ScriptedEngine, says
from tests.ingress.protocols.messages import COUNT, TEMPLATE, thinker

TOKENIZER = TextTokenizer(thinker())
CLEAR = "clear_thinking_20251015"
CLEAR_TOOL_USES = "clear_tool_uses_20250919"


def thinks(thought: str, *more: object) -> dict[str, object]:
    block = {"type": "thinking", "thinking": thought, "signature": "s"}
    return {"role": "assistant", "content": [block, {"type": "text", "text": "So."}, *more]}


def user(*blocks: object) -> dict[str, object]:
    return {"role": "user", "content": [*blocks, {"type": "text", "text": "Hi"}]}


CALL = {"type": "tool_use", "id": "a", "name": "weather", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "sunny"}
HISTORY: dict[str, Any] = {
    "tools": [WEATHER],
    "thinking": {"type": "adaptive"},
    "messages": [
        user(),
        thinks("first"),
        user(),
        {"role": "assistant", "content": "No thought."},
        user(),
        thinks("second", CALL),
        user(RESULT),
        thinks("third"),
        user(),
    ],
}
ALL = ["first", "second", "third"]


def editing(**fields: object) -> dict[str, Any]:
    return {**HISTORY, "context_management": {"edits": [{"type": CLEAR, **fields}]}}


def turns(value: int) -> dict[str, object]:
    return {"type": "thinking_turns", "value": value}


CASES: list[tuple[dict[str, Any], list[str]]] = [
    (HISTORY, ALL),
    ({**HISTORY, "context_management": {"edits": []}}, ALL),
    (editing(keep="all"), ALL),
    (editing(keep={"type": "all"}), ALL),
    (editing(keep=turns(2)), ALL),
    (editing(keep=turns(9)), ALL),
    (editing(keep=turns(1)), ["second", "third"]),
    (editing(), ["second", "third"]),
    (editing(keep=None), ["second", "third"]),
]


def counted(body: dict[str, Any], model: ModelCard | None = None) -> Any:
    return answer(says("x"), {"model": "tiny", **body}, path=COUNT, model=model).json()


@pytest.mark.parametrize(("body", "kept"), CASES)
def test_the_last_turns_keep_their_thoughts(body: dict[str, Any], kept: list[str]) -> None:
    prompt = TOKENIZER.decode(asked(body).prompt_ids)
    assert [thought for thought in ALL if f"<think>{thought}</think>So." in prompt] == kept
    assert prompt.count("<think>") == len(kept)


def test_the_answer_says_what_was_left_out() -> None:
    tokens = counted(HISTORY)["input_tokens"] - counted(editing())["input_tokens"]
    assert tokens > len(TOKENIZER.encode("first", False))  # its marks went too
    edit = {"type": CLEAR, "cleared_thinking_turns": 1, "cleared_input_tokens": tokens}
    for body, edits in ((editing(), [edit]), (editing(keep="all"), [])):
        told = {"applied_edits": edits}
        assert whole(says("x"), **body)["context_management"] == told
        [*_, last, _] = streamed(says("x"), **body)
        assert (last["type"], last["context_management"]) == ("message_delta", told)
    assert "context_management" not in whole(says("x"), **HISTORY)


def test_the_count_knows_what_there_was_before() -> None:
    edited = counted(editing())
    assert edited["input_tokens"] == len(asked(editing()).prompt_ids)
    original = edited["context_management"]["original_input_tokens"]
    assert original == counted(HISTORY)["input_tokens"]


def test_what_a_template_leaves_out_by_itself_is_not_saved_by_an_edit() -> None:
    forgets = "{% if m.reasoning_content and loop.index0 > 1 %}"
    template = TEMPLATE.replace("{% if m.reasoning_content %}", forgets)
    edited = counted(editing(), replace(thinker(), chat_template=template))
    assert edited["context_management"] == {"original_input_tokens": edited["input_tokens"]}


def test_the_sdk_reads_what_was_left_out() -> None:
    async def asks() -> list[Any]:
        async with sdk(served(ScriptedEngine(says("x"), thinker()))) as client:
            body: Any = {**HELLO, **editing()}
            unary = await client.beta.messages.create(**body)
            async with client.beta.messages.stream(**body) as stream:
                return [unary, await stream.get_final_message()]

    for message in asyncio.run(asks()):
        [edit] = message.context_management.applied_edits
        assert (edit.type, edit.cleared_thinking_turns) == (CLEAR, 1)


# Four uses of two tools, the second and third in one turn.
USES = [("weather", "Oslo"), ("clock", "Rome"), ("weather", "Bonn"), ("clock", "Lima")]
RESULTS = [f"{name} of {city}: " + "very long " * 9 for name, city in USES]


def uses(*numbers: int) -> list[dict[str, object]]:
    calls = [
        {"type": "tool_use", "id": f"c{n}", "name": name, "input": {"city": city}}
        for n, (name, city) in enumerate(USES)
        if n in numbers
    ]
    results = [
        {"type": "tool_result", "tool_use_id": f"c{n}", "content": RESULTS[n]} for n in numbers
    ]
    return [thinks(f"of {numbers[0]}", *calls), {"role": "user", "content": results}]


WORKING: dict[str, Any] = {
    "tools": [WEATHER, {**WEATHER, "name": "clock"}],
    "thinking": {"type": "adaptive"},
    "messages": [user(), *uses(0), *uses(2, 1), *uses(3)],
}
NOW = {"trigger": {"type": "input_tokens", "value": 1}}


def clearing(**fields: object) -> dict[str, Any]:
    edit = {"type": CLEAR_TOOL_USES, **NOW, **fields}
    return {**WORKING, "context_management": {"edits": [edit]}}


def kept(value: int) -> dict[str, object]:
    return {"type": "tool_uses", "value": value}


@pytest.mark.parametrize(
    ("fields", "left", "inputs"),
    [
        ({}, [1, 2, 3], 4),
        ({"trigger": None}, [0, 1, 2, 3], 4),
        ({"trigger": {"type": "tool_uses", "value": 4}}, [0, 1, 2, 3], 4),
        ({"trigger": {"type": "tool_uses", "value": 3}}, [1, 2, 3], 4),
        ({"keep": kept(4)}, [0, 1, 2, 3], 4),
        ({"keep": kept(1)}, [3], 4),
        ({"keep": kept(0)}, [], 4),
        ({"keep": kept(0), "exclude_tools": ["clock"]}, [1, 3], 4),
        ({"keep": kept(1), "clear_tool_inputs": True}, [3], 1),
        ({"keep": kept(1), "clear_tool_inputs": ["weather"]}, [3], 2),
        ({"keep": kept(1), "clear_tool_inputs": False}, [3], 4),
        ({"clear_at_least": {"type": "input_tokens", "value": 1}}, [1, 2, 3], 4),
        ({"clear_at_least": {"type": "input_tokens", "value": 9999}}, [0, 1, 2, 3], 4),
    ],
)
def test_the_last_tool_uses_keep_their_results(
    fields: dict[str, Any], left: list[int], inputs: int
) -> None:
    prompt = TOKENIZER.decode(asked(clearing(**fields)).prompt_ids)
    assert [n for n, result in enumerate(RESULTS) if result in prompt] == left
    assert prompt.count("[Old tool result content cleared][") == 4 - len(left)
    assert sum(f'"{city}"' in prompt for _, city in USES) == inputs
    original = counted(WORKING)["input_tokens"]
    tokens = original - counted(clearing(**fields))["input_tokens"]
    assert tokens > 0 or len(left) == 4
    edit = {
        "type": CLEAR_TOOL_USES,
        "cleared_tool_uses": 4 - len(left),
        "cleared_input_tokens": tokens,
    }
    told = whole(says("x"), **clearing(**fields))["context_management"]["applied_edits"]
    assert told == ([edit] if tokens else [])


def test_each_edit_counts_what_it_removed_itself() -> None:
    thinking = {"type": CLEAR, "keep": turns(1)}
    both = clearing()
    both["messages"] = [*WORKING["messages"], *HISTORY["messages"][1:]]
    both["context_management"]["edits"].insert(0, thinking)
    edits = whole(says("x"), **both)["context_management"]["applied_edits"]
    assert [edit["type"] for edit in edits] == [CLEAR, CLEAR_TOOL_USES]
    count = counted(both)
    removed = count["context_management"]["original_input_tokens"] - count["input_tokens"]
    assert sum(edit["cleared_input_tokens"] for edit in edits) == removed
    assert all(edit["cleared_input_tokens"] for edit in edits)


def test_what_is_too_long_may_fit_after_an_edit() -> None:
    small = thinker(counted(clearing(keep=kept(0)))["input_tokens"] + 8)
    assert answer(says("x"), {**HELLO, **WORKING}, model=small).status_code == 400
    assert answer(says("x"), {**HELLO, **clearing(keep=kept(0))}, model=small).status_code == 200


def test_the_sdk_reads_how_many_tool_uses_were_cleared() -> None:
    async def asks() -> Any:
        async with sdk(served(ScriptedEngine(says("x"), thinker()))) as client:
            body: Any = {**HELLO, **clearing()}
            return await client.beta.messages.create(**body)

    [edit] = asyncio.run(asks()).context_management.applied_edits
    assert (edit.type, edit.cleared_tool_uses) == (CLEAR_TOOL_USES, 1)


THOUGHTS, TOOL_USES = {"type": CLEAR}, {"type": CLEAR_TOOL_USES}
WRONG: list[tuple[list[object], str]] = [
    ([{"type": "compact_20260112"}], "context_management.edits[0].type"),
    ([{**TOOL_USES, "type": "clear_tool_uses_20990101"}], "context_management.edits[0].type"),
    ([THOUGHTS, THOUGHTS], "context_management.edits"),
    ([TOOL_USES, THOUGHTS, TOOL_USES], "context_management.edits"),
    ([{**TOOL_USES, "keep": 3}], "context_management.edits[0].keep"),
    (
        [{**TOOL_USES, "keep": {"type": "tool_uses", "value": -1}}],
        "context_management.edits[0].keep.value",
    ),
    (
        [{**TOOL_USES, "trigger": {"type": "input_tokens", "value": 0}}],
        "context_management.edits[0].trigger.value",
    ),
    ([{**TOOL_USES, "trigger": {"type": "x"}}], "context_management.edits[0].trigger.type"),
    (
        [{**TOOL_USES, "clear_at_least": {"type": "tool_uses", "value": 1}}],
        "context_management.edits[0].clear_at_least.type",
    ),
    ([{**TOOL_USES, "exclude_tools": "x"}], "context_management.edits[0].exclude_tools"),
    ([{**TOOL_USES, "clear_tool_inputs": 1}], "context_management.edits[0].clear_tool_inputs"),
    ([{**THOUGHTS, "keep": "none"}], "context_management.edits[0].keep"),
    ([{**THOUGHTS, "keep": {"type": "some"}}], "context_management.edits[0].keep.type"),
    (
        [{**THOUGHTS, "keep": {"type": "thinking_turns", "value": 0}}],
        "context_management.edits[0].keep.value",
    ),
]


@pytest.mark.parametrize(("edits", "named"), WRONG)
def test_an_edit_that_is_wrong_is_named(edits: list[object], named: str) -> None:
    body = {**HELLO, "context_management": {"edits": edits}}
    response = answer(says("x"), body)
    assert response.status_code == 400, response.text
    assert named in response.json()["error"]["message"]
