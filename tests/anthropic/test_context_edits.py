"""Context management: older thinking is removed from the prompt, and the answer reports it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.wire import ModelCard
from tests.anthropic.serving import (
    COUNT,
    HELLO,
    TEMPLATE,
    WEATHER,
    answer,
    asked,
    sdk,
    served,
    streamed,
    thinker,
    whole,
)
from tests.ingress.engines import ScriptedEngine, says

TOKENIZER = TextTokenizer(thinker())
CLEAR = "clear_thinking_20251015"


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
