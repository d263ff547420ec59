"""Messages match the SDK's types, streamed and unary, and have the right stop reason."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.requests import GenerationRequest
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.anthropic.serving import HELLO, WEATHER, answer, asked, sdk, served, streamed, whole
from tests.ingress.engines import ScriptedEngine, says
from tests.ingress.protocols.messages import MESSAGE, USER, nameless, thinker
from tests.ingress.protocols.protocol import named_events
from tests.ingress.protocols.replies import CALL, OF_BLOCKS, THOUGHT, call, cases
from tests.openai.serving import Socket

TOKENIZER = TextTokenizer(thinker())
ASKED: dict[str, Any] = {"tools": [WEATHER], "thinking": {"type": "adaptive"}}
CUT = [{**ASKED, "max_tokens": n} for n in range(1, 140, 4)]
SPOKEN = [(text, fields) for _, text, fields, size in cases(OF_BLOCKS) if size == 1]


@pytest.mark.parametrize(("text", "fields"), SPOKEN)
async def test_the_sdks_own_accumulator_agrees(text: str, fields: dict[str, Any]) -> None:
    body: Any = {**HELLO, **fields}
    async with sdk(served(ScriptedEngine(says(text), thinker()))) as client:
        unary = await client.messages.create(**body)
        async with client.messages.stream(**body) as stream:
            final = await stream.get_final_message()
    told, known = (message.model_dump(exclude_none=True) for message in (final, unary))
    assert nameless(told) == nameless(known)


def content(text: str, **fields: object) -> list[Any]:
    blocks: list[Any] = whole(says(text), **ASKED | fields)["content"]
    return blocks


def test_blocks_come_in_the_order_of_the_reply() -> None:
    thought, text, first, second = content(f"{THOUGHT}Well.\n{CALL}\n{call(arguments='{}')}")
    assert thought["type"] == "thinking"
    assert thought["thinking"].strip() == THOUGHT.split("\n")[1]
    assert thought["signature"]
    assert text == {"type": "text", "text": "Well.", "citations": []}
    assert (first["type"], first["name"]) == ("tool_use", "weather")
    assert first["input"] == {"city": 'K\u00f6ln "x"', "n": [1, 2]}
    assert second["input"] == {}
    assert first["id"].startswith("toolu_")
    assert first["id"] != second["id"]


def test_a_thought_that_is_not_shown_comes_back_in_its_signature() -> None:
    hidden = {"type": "adaptive", "display": "omitted"}
    thought, text = content(f"{THOUGHT}Yes.", thinking=hidden)
    assert thought["thinking"] == ""
    history = [USER, {"role": "assistant", "content": [thought, text]}, USER]
    prompt = TOKENIZER.decode(asked({"messages": history}).prompt_ids, skip_special_tokens=False)
    assert "<think>Hm, 42" in prompt


def test_arguments_that_were_cut_are_an_object_still() -> None:
    said = f"{THOUGHT}A. {CALL}"
    cut = [block for fields in CUT for block in content(said, **fields)]
    inputs = [block["input"] for block in cut if block["type"] == "tool_use"]
    assert {} in inputs
    city = {"city": 'K\u00f6ln "x"'}
    assert city in inputs or city | {"n": [1]} in inputs


def test_an_answer_cut_by_the_context_says_so() -> None:
    prompt = len(asked({}).prompt_ids)
    for limit, reason in ((8, "max_tokens"), (9, "model_context_window_exceeded")):
        response = answer(
            says("x " * 50), {**HELLO, "max_tokens": limit}, model=thinker(prompt + 8)
        )
        assert response.json()["stop_reason"] == reason
        assert response.json()["usage"]["output_tokens"] == 8


def test_a_stop_behind_a_call_is_told() -> None:
    message = whole(says(f"{CALL}\nThere."), **ASKED, stop_sequences=["There"])
    assert (message["stop_reason"], message["stop_sequence"]) == ("stop_sequence", "There")


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
    starts = [e for e in streamed(says(CALL), **ASKED) if e["type"] == "content_block_start"]
    assert [start["content_block"]["input"] for start in starts] == [{}]


def test_no_tokens_at_all_compute_the_prompt() -> None:
    async def nothing(request: GenerationRequest) -> Any:
        assert request.max_tokens == 0
        yield TokenEvent(finish_reason=FinishReason.LENGTH)

    message = whole(nothing, max_tokens=0)
    assert (message["content"], message["stop_reason"]) == ([], "max_tokens")


async def test_a_thought_that_is_not_shown_is_no_silence() -> None:
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
    assert received.count(b"event: ping") > 3
    assert b"thinking_delta" not in received
    assert b"signature_delta" in received


@pytest.mark.parametrize("value", ["NaN", "1e999", '"\\ud800"', "1" * 5000, "[" * 300])
def test_arguments_that_json_has_no_word_for_do_no_harm(value: str) -> None:
    call = f'<tool_call>\n{{"name": "weather", "arguments": {{"n": {value}}}}}\n</tool_call>'
    body = {**HELLO, "tools": [WEATHER], "max_tokens": 8000}
    response = answer(says(call), body, model=thinker(16384))
    MESSAGE.validate_json(response.text, strict=True)
    streaming = answer(says(call), {**body, "stream": True}, model=thinker(16384))
    assert named_events(streaming)[-1] == {"type": "message_stop"}
