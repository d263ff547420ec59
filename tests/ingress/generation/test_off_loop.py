"""Work that takes long is done beside the event loop, however short the body that asks for it."""

import asyncio
import threading
from dataclasses import dataclass

import pytest
from pydantic import BaseModel
from starlette.applications import Starlette

from deployments.anthropic.messages_schema import parse_count, parse_messages
from deployments.anthropic.thinking_signatures import sign
from deployments.contract.model_card import ModelCard
from deployments.ingress.metrics import Metrics
from deployments.ingress.off_loop import LARGE_BYTES, BodyWork, OffLoop, Turns
from deployments.ingress.routes.service import Service, UnaryOperation, recalls_nothing
from deployments.openai.chat.schema import parse_chat
from deployments.openai.completions.schema import parse_completion
from deployments.openai.responses.schema import parse_response_request
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.anthropic.serving import WEATHER
from tests.ingress.engines import ScriptedEngine, says
from tests.openai.serving import http
from tests.text.cards import card


class Empty(BaseModel):
    model: str | None = None
    is_heavy: bool


@dataclass
class Asked:
    threads: list[int]

    def answer(self, body: Empty, model: ModelCard, tokenizer: TextTokenizer) -> object:
        self.threads.append(threading.get_ident())
        return {}


@pytest.mark.parametrize("heavy", [False, True])
async def test_a_heavy_unary_request_is_answered_by_another_thread(heavy: bool) -> None:
    asked = Asked([])
    operation = UnaryOperation(
        name="ask",
        path="/ask",
        body=Empty,
        parse=Empty.model_validate,
        answer=recalls_nothing(asked.answer),
    )
    service = Service(engine=ScriptedEngine(says("x")), metrics=Metrics())
    service.tokenizers.get(card())
    async with http(Starlette(routes=[service.unary_route(operation)])) as client:
        assert (await client.post("/ask", json={"is_heavy": heavy})).json() == {}
    assert (asked.threads == [threading.get_ident()]) is not heavy


def test_of_clients_that_wait_none_waits_for_all_that_another_one_asked() -> None:
    async def play() -> list[str]:
        turns, served, gate = Turns(), list[str](), asyncio.Event()

        async def ask(client: str) -> None:
            async with turns.turn(client):
                await gate.wait()
                served.append(client)

        asked = [asyncio.create_task(ask(client)) for client in "aaaabbc"]
        await asyncio.sleep(0)
        asked[3].cancel()  # one that waits
        asked[0].cancel()  # the one whose turn it is
        gate.set()
        await asyncio.wait(asked)
        async with turns.turn("d"):
            return served

    assert asyncio.run(play()) == ["a", "b", "c", "a", "b"]


async def test_large_bodies_are_worked_on_one_at_a_time() -> None:
    running, most = 0, 0

    def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        met.wait(timeout=0.01)  # nobody comes
        running -= 1

    met = threading.Event()
    off_loop = OffLoop()
    large = (BodyWork(off_loop, LARGE_BYTES + 1, client) for client in "aabb")
    await asyncio.gather(*(body.run(work) for body in large))
    assert most == 1


USER = {"role": "user", "content": "x"}
CHATS = {"messages": [USER]}
MESSAGE = {"model": "m", "max_tokens": 1, "messages": [USER]}
TOOL = {"type": "function", "function": {"name": "f"}}
THOUGHT = {"type": "thinking", "thinking": "", "signature": sign("a" * 1000, shown=False)}
FORM = {"type": "json_schema", "schema": {"type": "object"}}


@pytest.mark.parametrize(
    ("fields", "heavy"),
    [
        ({}, False),
        ({"tools": []}, False),
        ({"tools": [TOOL]}, True),
        ({"response_format": {"type": "json_object"}}, True),
    ],
)
def test_a_chat_with_a_grammar_or_tools_is_heavy(fields: dict[str, object], heavy: bool) -> None:
    assert parse_chat({**CHATS, **fields}).is_heavy == heavy


@pytest.mark.parametrize(
    ("fields", "heavy"),
    [({}, False), ({"regex": "a+"}, True), ({"prompt": ["x"] * 40, "n": 2}, True)],
)
def test_a_completion_with_a_grammar_or_many_choices_is_heavy(
    fields: dict[str, object], heavy: bool
) -> None:
    assert parse_completion({"prompt": "x", **fields}).is_heavy == heavy


@pytest.mark.parametrize(
    ("fields", "heavy"),
    [
        ({"input": "x"}, False),
        ({"input": "x", "tools": [{"type": "function", "name": "f"}]}, True),
        ({"input": "x", "text": {"format": {"type": "json_object"}}}, True),
        ({"previous_response_id": "resp_1"}, True),
        ({"input": [{"id": "msg_1"}]}, True),
    ],
)
def test_a_response_with_those_or_with_a_past_is_heavy(
    fields: dict[str, object], heavy: bool
) -> None:
    assert parse_response_request(fields).is_heavy == heavy


@pytest.mark.parametrize(
    ("fields", "heavy"),
    [
        ({}, False),
        ({"tools": [WEATHER]}, True),
        ({"output_config": {"format": FORM}}, True),
        ({"messages": [USER, {"role": "assistant", "content": [THOUGHT]}, USER]}, True),
    ],
)
def test_a_message_with_those_or_with_packed_thoughts_is_heavy(
    fields: dict[str, object], heavy: bool
) -> None:
    assert parse_messages({**MESSAGE, **fields}).is_heavy == heavy
    counted = {name: value for name, value in MESSAGE.items() if name != "max_tokens"}
    assert parse_count({**counted, **fields}).is_heavy == heavy
