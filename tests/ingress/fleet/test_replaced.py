"""Requests whose model is replaced under them: what has told nothing yet is prepared anew, once."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from ray.exceptions import ActorDiedError

from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.contract.events import TokenEvent
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest
from deployments.contract.routing import RoutingDecision
from tests.ingress.engines import ScriptedEngine, fails, says
from tests.ingress.fleet.actors import MODEL, Actors, produces
from tests.ingress.fleet.test_fleet import ASKED, WHOLE, answered, ids, refuses
from tests.openai.responses.responding import RESPONSES
from tests.openai.serving import CHAT, COMPLETIONS, HELLO, Socket, post, served
from tests.text.cards import card

REPLACED = RequestError(ErrorKind.MODEL_REPLACED, "The model was replaced")


class Reloading(ScriptedEngine):
    """Fails with its first `times` cards, after some text; each has more context than the last.

    The gate is what they wait for, and `loaded` what later cards do.
    """

    def __init__(
        self,
        times: int,
        after: str = "",
        gate: asyncio.Event | None = None,
        loaded: asyncio.Event | None = None,
    ) -> None:
        super().__init__(says("Hello there"))
        self.times = times
        self.after = after
        self.gate = gate
        self.loaded = loaded
        self.loading = asyncio.Event()
        self.waiting = 0

    async def card(self, model: str | None) -> ModelCard:
        if self.requests and self.loaded is not None:
            self.waiting += 1
            self.loading.set()
            try:
                await self.loaded.wait()
            finally:
                self.waiting -= 1
        return await super().card(model)

    async def generate(
        self,
        card: ModelCard,
        request: GenerationRequest,
        is_complete: Callable[[], bool] = lambda: False,
    ) -> AsyncGenerator[TokenEvent, None]:
        self.script = says("Hello there")
        if self.times:
            if self.gate is not None:
                await self.gate.wait()
            self.times -= 1
            self.script = fails(REPLACED, self.after)
            self.cards[card.name] = replace(card, context_length=2 * card.context_length)
        async for event in super().generate(card, request, is_complete):
            yield event


def ask(engine: Reloading, stream: bool) -> httpx.Response:
    response = asyncio.run(post(engine, CHAT, {**HELLO, "stream": stream}))
    assert engine.running == 0
    return response


@pytest.mark.parametrize("stream", [False, True])
def test_what_has_told_nothing_is_prepared_for_the_next_card(stream: bool) -> None:
    engine = Reloading(1)
    response = ask(engine, stream)
    assert response.status_code == 200
    assert '"finish_reason":"stop"' in response.text
    before, after = [request.max_tokens or 0 for request in engine.requests]
    assert before < after


ASKED_OF: list[tuple[str, dict[str, Any], bytes]] = [
    (CHAT, HELLO, b'"role":"assistant"'),
    (COMPLETIONS, {"prompt": "Hello"}, b'"finish_reason":"stop"'),
    (RESPONSES, {"input": "Hello"}, b"event: response.created"),
]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(("path", "body", "once"), ASKED_OF)
async def test_a_stream_that_has_sent_only_silence_has_told_nothing(
    path: str, body: dict[str, Any], once: bytes, times: int
) -> None:
    gate = asyncio.Event()
    engine = Reloading(times, gate=gate)
    socket = Socket(path, {**body, "stream": True})
    asking = asyncio.create_task(socket(served(engine, keep_alive_s=0.001)))
    assert (await socket.sent.get())["status"] == 200
    sent: bytes = (await socket.sent.get())["body"]
    gate.set()
    await asking
    assert (len(engine.requests), engine.running) == (2, 0)
    while not socket.sent.empty():
        sent += socket.sent.get_nowait()["body"]
    assert sent.startswith(b": keep-alive\n\n")
    assert sent.count(once) == (times == 1)
    assert (b"model_replaced" in sent) == (times == 2)


async def loads_anew(stream: bool) -> tuple[Reloading, Socket, asyncio.Task[None]]:
    """An answer that has begun, and is shown to go on, while its model loads."""
    engine = Reloading(1, loaded=asyncio.Event())
    socket = Socket(CHAT, {**HELLO, "stream": stream})
    asking = asyncio.create_task(socket(served(engine, keep_alive_s=0.001, probe_s=0.001)))
    await engine.loading.wait()
    while not socket.sent.empty():
        socket.sent.get_nowait()
    for _ in range(3):
        await socket.sent.get()
    return engine, socket, asking


@pytest.mark.parametrize("stream", [False, True])
async def test_silence_is_filled_while_an_answer_is_prepared_anew(stream: bool) -> None:
    engine, socket, asking = await loads_anew(stream)
    assert engine.loaded is not None
    engine.loaded.set()
    await asking
    sent = [socket.sent.get_nowait()["body"] for _ in range(socket.sent.qsize())]
    assert b'"finish_reason":"stop"' in b"".join(sent)


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_is_seen_while_an_answer_is_prepared_anew(stream: bool) -> None:
    engine, socket, asking = await loads_anew(stream)
    socket.leave()
    await asking
    assert engine.waiting == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_is_replaced_again_is_the_callers_to_ask_for(stream: bool) -> None:
    response = ask(Reloading(2), stream)
    assert response.status_code == 503
    assert response.json()["error"]["code"] == "model_replaced"


@pytest.mark.parametrize(("stream", "status"), [(False, 503), (True, 200)])
def test_what_has_told_something_ends_with_its_model(stream: bool, status: int) -> None:
    engine = Reloading(1, after="Hello")
    response = ask(engine, stream)
    assert response.status_code == status
    assert "model_replaced" in response.text
    assert len(engine.requests) == 1


async def test_ids_of_a_replaced_model_are_refused_and_its_card_is_forgotten() -> None:
    actors = Actors(refuses(REPLACED))
    actors.router.choices = [RoutingDecision("a", True, "another")]
    fleet = actors.fleet()
    with pytest.raises(Refused) as caught:
        await anext(fleet.generate(await fleet.card(MODEL), ASKED))
    assert caught.value.error == REPLACED
    await fleet.card(MODEL)
    assert actors.model.cards_sent == 2
    assert len(actors.model.requests) == 1


def test_ids_that_one_replica_refused_are_for_those_that_have_their_card() -> None:
    actors = Actors(produces(3, ActorDiedError()), refuses(REPLACED), produces())
    actors.router.choices = [RoutingDecision(name, True, card().version) for name in "abc"]
    assert ids(answered(actors, ASKED)) == WHOLE
    assert [pin for pin, _ in actors.model.requests] == ["a", "b", "c"]


def test_who_lost_the_only_replica_with_its_card_comes_back_to_it_from_others() -> None:
    actors = Actors(produces(3, ActorDiedError()), refuses(REPLACED), produces())
    actors.router.choices = [RoutingDecision("a", True, card().version)]
    assert ids(answered(actors, ASKED)) == WHOLE
    assert [pin for pin, _ in actors.model.requests] == ["a", None, "a"]
