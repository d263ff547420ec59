"""A request that failed leaves no cycle of objects: its memory is back without a collection."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine

import pytest
from starlette.types import ASGIApp

from deployments.contract.errors import ErrorKind, RequestError
from deployments.openai.routes import app
from tests.ingress.edge import every, protocol_of
from tests.ingress.engines import Loading, ScriptedEngine, fails
from tests.ingress.fleet.actors import Actors
from tests.ingress.fleet.test_replaced import Reloading
from tests.openai.serving import CHAT, COMPLETIONS, HELLO, Socket, http, served

LONG = [7] * 10_000  # ids; more than the context, and enough to be read in a thread
GONE = RequestError(ErrorKind.MODEL_NOT_FOUND, "There is none")
USER = {"role": "user", "content": "x" * 100_000}
CLAUDE = {"model": "tiny", "max_tokens": 1, "messages": [USER]}
NATIVE = {"prompt": LONG, "content": LONG, "input_prefix": 1}


def failures() -> list[object]:
    """All that there are. `isinstance` would ask each object for its class, and some warn then."""
    return [
        candidate for candidate in gc.get_objects() if issubclass(type(candidate), BaseException)
    ]


def failures_left(ask: Callable[[], Awaitable[int]]) -> tuple[int, list[str]]:
    """The status of the last of several answers, and failures that only a collector would find."""

    async def asks() -> tuple[int, list[str]]:
        await ask()  # what is made once, and kept
        # So that `failures` finds none of all that is there: to look takes seconds. It stays so,
        # as the session froze most of it: each later collection would look at it again.
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            for _ in range(3):
                status = await ask()
            await asyncio.get_running_loop().shutdown_default_executor()
            await asyncio.sleep(0)  # the loop lets go of what it ran last
            return status, [repr(failure) for failure in failures()]
        finally:
            gc.enable()

    return asyncio.run(asks())


def posts(served_app: ASGIApp, path: str, body: object) -> Callable[[], Coroutine[None, None, int]]:
    async def post() -> int:
        async with http(served_app) as client:
            return (await client.post(path, json=body)).status_code

    return post


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": LONG}),
        (COMPLETIONS, {"prompt": [1, "x"]}),
        (COMPLETIONS, {"prompt": "x" * 10_000, "f": 1}),
        (CHAT, {"messages": [USER]}),
        (CHAT, {"messages": [{"role": "nobody"}] * 1000}),
        (CHAT, {**HELLO, "stream": True, "tools": [{}]}),
        (CHAT, [HELLO]),
        ("/v1/responses", {"input": "x" * 100_000}),
        ("/v1/responses/input_tokens", {"input": [{"type": "x"}] * 1000}),
        ("/v1/streams/lookup", {"conversation_ids": [1]}),
        ("/v1/messages", CLAUDE),
        ("/v1/messages/count_tokens", CLAUDE),
        *((path, NATIVE) for path in ("/completion", "/tokenize", "/infill")),
    ],
)
def test_a_refused_request_leaves_nothing(path: str, body: object) -> None:
    served_app = every()[protocol_of(path)]
    assert failures_left(posts(served_app, path, body)) == (400, [])


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_fails_leaves_nothing(stream: bool) -> None:
    failing = served(ScriptedEngine(fails(RequestError(ErrorKind.OVERLOADED, "later"))))
    assert failures_left(posts(failing, CHAT, {**HELLO, "stream": stream})) == (429, [])


@pytest.mark.parametrize("stream", [False, True])
def test_nor_does_one_whose_model_is_replaced_twice(stream: bool) -> None:
    body = {**HELLO, "stream": stream}
    ask = posts(served(Reloading(10**6)), CHAT, body)
    assert failures_left(ask) == (503, [])


def test_nor_does_one_that_was_delayed_until_its_model_failed() -> None:
    async def ask() -> int:
        engine = Loading(GONE)
        socket = Socket(CHAT, {**HELLO, "stream": True})
        serving = asyncio.create_task(socket(served(engine, keep_alive_s=0.001, probe_s=0.001)))
        status: int = (await socket.sent.get())["status"]
        engine.loaded.set()
        await serving
        return status

    assert failures_left(ask) == (200, [])


def test_a_request_for_no_model_leaves_nothing_in_the_fleet() -> None:
    async def ask() -> int:
        actors = Actors()
        actors.router.wants = [GONE]
        return await posts(app(actors.fleet(), actors.metrics), CHAT, {**HELLO, "model": "none"})()

    assert failures_left(ask) == (404, [])
