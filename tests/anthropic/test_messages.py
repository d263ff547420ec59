"""Messages match the SDK's types, streamed and unary, and have the right stop reason."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_core import from_json

from deployments.contract.errors import ErrorKind, RequestError
from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.requests import GenerationRequest
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.anthropic.serving import (
    HELLO,
    MESSAGE,
    USER,
    WEATHER,
    answer,
    asked,
    events_of,
    sdk,
    served,
    streamed,
    thinker,
    whole,
)
from tests.ingress.engines import ScriptedEngine, fails, plays, raises, says
from tests.openai.serving import Socket

TOKENIZER = TextTokenizer(thinker())
ARGUMENTS = '{"city": "K\u00f6ln", "n": [1, 2]}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {ARGUMENTS}}}\n</tool_call>'
SECOND = '<tool_call>\n{"name": "weather", "arguments": {}}\n</tool_call>'
THOUGHT = "<think>\nHm, 42?\n</think>\n\n"
CASES: dict[str, tuple[str, dict[str, object]]] = {
    "text": ("Hello \u65e5\u672c \U0001f642 world\u2028!", {}),
    "nothing": ("", {}),
    "newlines": ("\n\n def f(x):\n", {}),
    "a thought": (THOUGHT + "Yes.", {}),
    "a thought alone": ("<think>\nHm", {}),
    "a call": (CALL, {}),
    "text before a call": ("Let me look.\n" + CALL, {}),
    "thought, text and calls": (f"{THOUGHT}Well.\n{CALL}\n{SECOND}", {}),
    "text behind a call": (CALL + "\nThere.", {}),
    "two calls": (f"{CALL}\n{SECOND}", {}),
    "a call of no tool": (CALL.replace("weather", "stocks"), {}),
    "a stop": ("one two three", {"stop_sequences": ["never", " tw"]}),
    "a stop in a thought": (THOUGHT + "Yes.", {"stop_sequences": ["42"]}),
    "a stop behind a call": (CALL + "\nThere.", {"stop_sequences": ["There"]}),
    "a stop in a call": (CALL, {"stop_sequences": ["ln"]}),
    "an end in a call": (CALL[:50], {}),
    "a thought that is not shown": (
        THOUGHT + "Yes.",
        {"thinking": {"type": "adaptive", "display": "omitted"}},
    ),
    **{f"cut after {n}": (THOUGHT + "A. " + CALL, {"max_tokens": n}) for n in range(1, 90, 4)},
}


def script_of(case: str, size: int) -> tuple[Any, dict[str, object]]:
    text, fields = CASES[case]
    return says(text, size=size), {"tools": [WEATHER], "thinking": {"type": "adaptive"}, **fields}


def folded(events: list[Any]) -> Any:
    """The unary answer that the events stand for."""
    message: dict[str, Any] = dict(events[0]["message"])
    blocks: list[Any] = []
    for event in events[1:]:
        match event["type"]:
            case "content_block_start":
                assert event["index"] == len(blocks)
                blocks.append({**event["content_block"], "json": ""})
            case "content_block_delta":
                fold_delta(blocks[event["index"]], event["delta"])
            case "message_delta":
                message |= event["delta"]
                message["usage"] |= event["usage"]
    return {**message, "content": list(map(finished, blocks))}


def fold_delta(block: Any, delta: Any) -> None:
    match delta["type"]:
        case "text_delta":
            block["text"] += delta["text"]
        case "thinking_delta":
            block["thinking"] += delta["thinking"]
        case "signature_delta":
            block["signature"] += delta["signature"]
        case "input_json_delta":
            block["json"] += delta["partial_json"]


def finished(block: Any) -> Any:
    partial = block.pop("json")
    return {**block, "input": from_json(partial, allow_partial=True)} if partial else block


def nameless(message: Any) -> Any:
    """Returns the message with empty ids: they are drawn anew for each answer."""
    blocks = [{**block, "id": ""} if "id" in block else block for block in message["content"]]
    return {**message, "id": "", "content": blocks}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("size", [1, 3])
def test_a_stream_folds_to_the_unary_answer(case: str, size: int) -> None:
    script, fields = script_of(case, size)
    assert nameless(folded(streamed(script, **fields))) == nameless(whole(script, **fields))


@pytest.mark.parametrize("case", CASES)
def test_the_sdks_own_accumulator_agrees(case: str) -> None:
    async def asks() -> tuple[Any, Any]:
        script, fields = script_of(case, 1)
        body: Any = {**HELLO, **fields}
        async with sdk(served(ScriptedEngine(script, thinker()))) as client:
            unary = await client.messages.create(**body)
            async with client.messages.stream(**body) as stream:
                final = await stream.get_final_message()
        return final.model_dump(exclude_none=True), unary.model_dump(exclude_none=True)

    final, unary = asyncio.run(asks())
    assert nameless(final) == nameless(unary)


@pytest.mark.parametrize("case", CASES)
def test_one_block_ends_before_the_next_begins(case: str) -> None:
    script, fields = script_of(case, 1)
    events = streamed(script, **fields)
    kinds = [event["type"] for event in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    open_block = None
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert open_block is None
            open_block = event["index"]
        assert event["index"] == open_block
        if event["type"] == "content_block_stop":
            open_block = None
    assert open_block is None


def content(case: str) -> list[Any]:
    script, fields = script_of(case, 1)
    blocks: list[Any] = whole(script, **fields)["content"]
    return blocks


def test_blocks_come_in_the_order_of_the_reply() -> None:
    thought, text, first, second = content("thought, text and calls")
    assert thought["type"] == "thinking"
    assert thought["thinking"].strip() == "Hm, 42?"
    assert thought["signature"]
    assert text == {"type": "text", "text": "Well.", "citations": []}
    assert (first["type"], first["name"]) == ("tool_use", "weather")
    assert first["input"] == {"city": "K\u00f6ln", "n": [1, 2]}
    assert second["input"] == {}
    assert first["id"].startswith("toolu_")
    assert first["id"] != second["id"]


def test_text_that_is_no_call_is_content() -> None:
    [block] = content("a call of no tool")
    assert block["text"] == CASES["a call of no tool"][0]


def test_a_thought_that_is_not_shown_comes_back_in_its_signature() -> None:
    thought, text = content("a thought that is not shown")
    assert thought["thinking"] == ""
    history = [USER, {"role": "assistant", "content": [thought, text]}, USER]
    prompt = TOKENIZER.decode(asked({"messages": history}).prompt_ids, skip_special_tokens=False)
    assert "<think>Hm, 42?" in prompt


def test_arguments_that_were_cut_are_an_object_still() -> None:
    cut = [block for n in range(1, 90, 4) for block in content(f"cut after {n}")]
    inputs = [block["input"] for block in cut if block["type"] == "tool_use"]
    assert {} in inputs
    assert {"city": "K\u00f6ln"} in inputs or {"city": "K\u00f6ln", "n": [1]} in inputs


@pytest.mark.parametrize(
    ("case", "reason", "sequence"),
    [
        ("text", "end_turn", None),
        ("nothing", "end_turn", None),
        ("a thought", "end_turn", None),
        ("a call", "tool_use", None),
        ("text behind a call", "tool_use", None),
        ("a call of no tool", "end_turn", None),
        ("a stop", "stop_sequence", " tw"),
        ("a stop in a thought", "end_turn", None),
        ("a stop behind a call", "stop_sequence", "There"),
        ("a stop in a call", "stop_sequence", "ln"),
        ("an end in a call", "end_turn", None),
        ("cut after 5", "max_tokens", None),
        ("cut after 61", "max_tokens", None),
    ],
)
def test_an_answer_has_its_stop_reason(case: str, reason: str, sequence: str | None) -> None:
    script, fields = script_of(case, 1)
    message = whole(script, **fields)
    assert (message["stop_reason"], message["stop_sequence"]) == (reason, sequence)


def test_an_answer_cut_by_the_context_says_so() -> None:
    prompt = len(asked({}).prompt_ids)
    for limit, reason in ((8, "max_tokens"), (9, "model_context_window_exceeded")):
        response = answer(
            says("x " * 50), {**HELLO, "max_tokens": limit}, model=thinker(prompt + 8)
        )
        assert response.json()["stop_reason"] == reason
        assert response.json()["usage"]["output_tokens"] == 8


def test_usage_adds_up_to_the_prompt() -> None:
    prompt_tokens = len(asked({"thinking": {"type": "adaptive"}}).prompt_ids)
    text = THOUGHT + "Yes."
    usage = whole(says(text), thinking={"type": "adaptive"})["usage"]
    assert usage["cache_read_input_tokens"] == 4
    assert usage["input_tokens"] == prompt_tokens - 4
    assert usage["cache_creation_input_tokens"] == 0
    assert usage["output_tokens"] == len(TOKENIZER.encode(text, False)) + 1
    thought_tokens = usage["output_tokens_details"]["thinking_tokens"]
    assert 0 < thought_tokens < usage["output_tokens"]


def test_a_stream_begins_with_what_is_known_of_the_prompt() -> None:
    events = streamed(says("Hi"))
    message = events[0]["message"]
    final = events[-2]["usage"]
    assert message["id"].startswith("msg_")
    assert (message["model"], message["content"], message["stop_reason"]) == ("tiny", [], None)
    for count in ("input_tokens", "cache_read_input_tokens"):
        assert message["usage"][count] == final[count] > 0
    assert message["usage"]["output_tokens"] == 0


def test_a_call_begins_with_an_empty_input() -> None:
    script, fields = script_of("a call", 1)
    starts = [e for e in streamed(script, **fields) if e["type"] == "content_block_start"]
    assert [start["content_block"]["input"] for start in starts] == [{}]


def test_no_tokens_at_all_compute_the_prompt() -> None:
    async def nothing(request: GenerationRequest) -> Any:
        assert request.max_tokens == 0
        yield TokenEvent(finish_reason=FinishReason.LENGTH)

    message = whole(nothing, max_tokens=0)
    assert (message["content"], message["stop_reason"]) == ([], "max_tokens")


def test_a_silent_stream_is_pinged() -> None:
    async def waits() -> bytes:
        gate = asyncio.Event()
        engine = ScriptedEngine(says("Hello", gate=gate, size=99), thinker())
        socket = Socket("/v1/messages", {**HELLO, "stream": True})
        serving = asyncio.create_task(socket(served(engine, keep_alive_s=0.01)))
        assert (await socket.sent.get())["status"] == 200
        received = b""
        while received.count(b'event: ping\ndata: {"type":"ping"}\n\n') < 3:
            received += (await socket.sent.get())["body"]
        gate.set()
        await serving
        while not socket.sent.empty():
            received += socket.sent.get_nowait()["body"]
        return received

    received = asyncio.run(waits())
    assert b'"text":"Hello"' in received
    assert b"\n:" not in received
    assert received.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')


def test_a_thought_that_is_not_shown_is_no_silence() -> None:
    async def waits() -> bytes:
        loaded = asyncio.Event()

        async def thinks(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
            for _ in range(100_000):
                if loaded.is_set():
                    break
                yield TokenEvent(token_ids=(66,))
                await asyncio.sleep(0)
            yield TokenEvent(finish_reason=FinishReason.LENGTH)

        hidden = {"type": "enabled", "budget_tokens": 1024, "display": "omitted"}
        body = {**HELLO, "stream": True, "max_tokens": 1025, "thinking": hidden}
        socket = Socket("/v1/messages", body)
        engine = ScriptedEngine(thinks, thinker())
        serving = asyncio.create_task(socket(served(engine, keep_alive_s=0.01)))
        assert (await socket.sent.get())["status"] == 200
        received, more = b"", True
        while more:
            message = await socket.sent.get()
            received, more = received + message["body"], message["more_body"]
            if received.count(b"event: ping") > 3:
                loaded.set()
        await serving
        return received

    received = asyncio.run(waits())
    assert received.count(b"event: ping") > 3
    assert b"thinking_delta" not in received
    assert b"signature_delta" in received


def test_a_stream_that_fails_ends_with_an_error_event() -> None:
    error = RequestError(ErrorKind.UNAVAILABLE, "gone")
    headers = {"x-request-id": "mine"}
    body = {**HELLO, "stream": True}
    events = events_of(answer(fails(error, after="Hel"), body, headers=headers))
    assert events[0]["type"] == "message_start"
    assert events[-1] == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "gone"},
        "request_id": "mine",
    }


def test_what_broke_inside_stays_inside() -> None:
    response = answer(raises(RuntimeError("/secret/path")), HELLO)
    assert response.status_code == 500
    assert response.json()["error"]["type"] == "api_error"
    assert "secret" not in response.text


def test_broken_utf8_becomes_replacement_characters() -> None:
    lone = next(i for i in range(600) if TOKENIZER.token_bytes(i) == b"\xf0")
    assert whole(plays([lone, lone]))["content"][0]["text"] == "\ufffd\ufffd"


@pytest.mark.parametrize("value", ["NaN", "1e999", '"\\ud800"', "1" * 5000, "[" * 300])
def test_arguments_that_json_has_no_word_for_do_no_harm(value: str) -> None:
    call = f'<tool_call>\n{{"name": "weather", "arguments": {{"n": {value}}}}}\n</tool_call>'
    body = {**HELLO, "tools": [WEATHER], "max_tokens": 8000}
    response = answer(says(call), body, model=thinker(16384))
    MESSAGE.validate_json(response.text, strict=True)
    streaming = answer(says(call), {**body, "stream": True}, model=thinker(16384))
    assert events_of(streaming)[-1] == {"type": "message_stop"}
