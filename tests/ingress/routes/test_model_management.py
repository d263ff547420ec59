"""Models are loaded, unloaded and watched, under llama-server's paths and under `/v1`."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar

import httpx
import pytest
from starlette.types import ASGIApp

from deployments.contract.errors import Refused
from deployments.contract.model_status import LoadProgress, ModelState, ModelStatus
from deployments.ingress.metrics import Metrics
from deployments.ingress.routes.model_status import status_events, status_object
from deployments.ingress.routes.status_feed import MAX_WATCHERS, StatusFeed
from deployments.ingress.settings import DEFAULTS
from deployments.openai.routes import app as openai
from serve_app.applications.llama import app as llama
from tests.ingress.engines import ScriptedEngine, says
from tests.openai.serving import http, sdk
from tests.text.cards import card

T = TypeVar("T")
Made = Callable[..., ASGIApp]
PATHS = pytest.mark.parametrize(("made", "prefix"), [(llama, "/models"), (openai, "/v1/models")])


def two() -> ScriptedEngine:
    return ScriptedEngine(says("x"), card(), card(name="other"))


def ask(made: Made, talk: Callable[[httpx.AsyncClient, ScriptedEngine], Awaitable[T]]) -> T:
    async def asks() -> T:
        engine = two()
        async with http(made(engine, Metrics(), DEFAULTS)) as client:
            return await talk(client, engine)

    return asyncio.run(asks())


def states(listed: httpx.Response) -> dict[str, str]:
    return {model["id"]: model["status"]["state"] for model in listed.json()["data"]}


@PATHS
def test_a_model_is_unloaded_and_loaded(made: Made, prefix: str) -> None:
    async def talk(client: httpx.AsyncClient, _: ScriptedEngine) -> list[Any]:
        unloaded = await client.post(f"{prefix}/unload", json={"model": "other"})
        without = await client.get(prefix)
        loaded = await client.post(f"{prefix}/load", json={"model": "other"})
        return [unloaded.json(), states(without), loaded.json(), states(await client.get(prefix))]

    assert ask(made, talk) == [
        {"success": True},
        {"tiny": "ready", "other": "unloaded"},
        {"success": True},
        {"tiny": "ready", "other": "ready"},
    ]


@PATHS
@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"model": "nope"}, 404, "model"),
        ({}, 400, "model"),
        ({"model": 3}, 400, "model"),
        ({"model": "tiny", "now": True}, 400, "now"),
    ],
)
def test_what_can_not_be_loaded_is_refused(
    made: Made, prefix: str, body: object, status: int, param: str
) -> None:
    async def talk(client: httpx.AsyncClient, _: ScriptedEngine) -> httpx.Response:
        return await client.post(f"{prefix}/load", json=body)

    response = ask(made, talk)
    assert response.status_code == status
    assert param in response.json()["error"]["message"] or status == 404


@PATHS
def test_the_sources_are_read_again_when_a_list_asks_for_it(made: Made, prefix: str) -> None:
    async def talk(client: httpx.AsyncClient, engine: ScriptedEngine) -> list[int]:
        answers = [await client.get(f"{prefix}{query}") for query in ("", "?reload=1", "?reload=x")]
        return [engine.reloads, *(answer.status_code for answer in answers)]

    assert ask(made, talk) == [1, 200, 200, 400]


def test_the_openai_sdk_alone_unloads_a_model_and_sees_it() -> None:
    async def asks() -> list[object]:
        async with sdk(openai(two(), Metrics(), DEFAULTS)) as client:
            body = {"model": "other"}
            await client.post("/models/unload", body=body, cast_to=object)
            one: Any = await client.models.retrieve("other")
            return [one.status["value"], [m.id async for m in client.models.list()]]

    assert asyncio.run(asks()) == ["unloaded", ["tiny", "other"]]


async def test_who_watches_sees_what_is_and_what_changes() -> None:
    engine = two()
    events = StatusFeed(engine, keep_alive_s=60).watch("client")
    first = await anext(events)
    await engine.unload("other")
    second = await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    told = [json.loads(frame[6:]) for frame in (first + second).split(b"\n\n") if frame]
    assert [(event["model"], event["event"], event["data"]["status"]) for event in told] == [
        ("tiny", "status_change", "loaded"),
        ("other", "status_change", "loaded"),
        ("other", "status_change", "unloaded"),
    ]


async def test_what_is_asked_for_all_who_watch_does_not_end_with_the_first_of_them() -> None:
    of_request = ContextVar("of_request", default=0)
    engine = two()
    asked_in = []
    changes = engine.changes

    async def noted(version: int, wait_s: float) -> tuple[int, list[ModelStatus]]:
        asked_in.append(of_request.get())
        return await changes(version, wait_s)

    engine.changes = noted  # type: ignore[method-assign]
    of_request.set(1)
    events = StatusFeed(engine, keep_alive_s=60).watch("client")
    await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    assert asked_in[0] == 0


async def test_silence_is_filled_with_comments_and_the_number_of_watchers_is_bounded() -> None:
    feed = StatusFeed(two(), keep_alive_s=60)
    watching = [feed.watch("client") for _ in range(MAX_WATCHERS)]
    firsts = [await anext(watcher) for watcher in watching]
    assert len(set(firsts)) == 1
    feed._keep_alive_s = 0.01
    with pytest.raises(Refused):
        feed.watch("client")
    comment = await anext(watching[0])
    for watcher in watching:
        await watcher.aclose()  # type: ignore[attr-defined]
    feed.watch("client")
    assert comment.startswith(b":")


def status(name: str, state: ModelState, **more: Any) -> ModelStatus:
    return ModelStatus(name=name, application=f"model-{name}", state=state, created=0, **more)


def test_each_state_has_llama_servers_word_and_its_own() -> None:
    told = [status_object(status("m", state)) for state in ModelState]
    assert [(shown["value"], shown["state"]) for shown in told] == [
        ("downloading", "downloading"),
        ("unloaded", "unloaded"),
        ("loading", "loading"),
        ("loaded", "ready"),
        ("sleeping", "sleeping"),
        ("unloading", "unloading"),
        ("unloaded", "failed"),
    ]
    assert [shown.get("failed", False) for shown in told] == [False] * 6 + [True]


@pytest.mark.parametrize(("now", "told"), [
    ([ModelState.DOWNLOADING], []),
    ([ModelState.UNLOADED], ["status_change", "download_finished"]),
    ([ModelState.FAILED], ["status_change", "download_failed"]),
    ([], ["model_remove", "models_reload"]),
])  # fmt: skip
def test_the_end_of_a_download_is_an_event(now: list[ModelState], told: list[str]) -> None:
    before = [status("a/b", ModelState.DOWNLOADING)]
    events = status_events(before, [status("a/b", state) for state in now])
    assert [json.loads(event[6:])["event"] for event in events] == told


def test_progress_and_what_comes_and_goes_are_events() -> None:
    before = [status("a", ModelState.LOADING), status("b", ModelState.READY)]
    progress = LoadProgress(stage="weights", value=0.5)
    now = [status("a", ModelState.LOADING, progress=progress), status("c", ModelState.UNLOADED)]
    told = [json.loads(event[6:]) for event in status_events(before, now)]
    assert [(change["model"], change["event"]) for change in told] == [
        ("a", "status_change"),
        ("c", "status_change"),
        ("b", "model_remove"),
        ("*", "models_reload"),
    ]
    expected = {"stages": ["weights"], "current": "weights", "value": 0.5}
    assert told[0]["data"]["progress"] == expected
