"""The list of models and each of them, as Anthropic's clients read them under `/v1`."""

import asyncio
import json
from typing import Any, cast

import httpx
import httpx2
import pytest
from anthropic import AsyncAnthropic
from anthropic.types import ModelInfo
from pydantic import TypeAdapter

from deployments.contract.outputs import AnswerKinds
from tests.ingress.engines import ScriptedEngine, says
from tests.openai.serving import http, served
from tests.text.cards import card

VERSION = {"anthropic-version": "2023-06-01"}
NAMES = ["a", "org/b", "c", "d"]
EMBEDDER = card(name="vectors", answers=AnswerKinds(can_generate=False))  # not listed


def get(path: str) -> httpx.Response:
    async def asks() -> httpx.Response:
        engine = ScriptedEngine(says("x"), *(card(name=name) for name in NAMES), EMBEDDER)
        async with http(served(engine)) as client:
            return await client.get(path, headers=VERSION)

    return asyncio.run(asks())


def test_every_model_is_strictly_anthropics_for_its_clients() -> None:
    body = get("/v1/models").json()
    for model in body["data"]:
        TypeAdapter(ModelInfo).validate_json(json.dumps(model), strict=True)
    assert body["data"][1] == get("/v1/models/org/b").json()
    assert body["data"][1] == {
        "type": "model",
        "id": "org/b",
        "display_name": "org/b",
        "created_at": "2023-11-14T22:13:20Z",
        "lifecycle": "active",
        "max_input_tokens": 512,
    }


@pytest.mark.parametrize(
    ("query", "names", "more"),
    [
        ("", NAMES, False),
        ("?limit=2", NAMES[:2], True),
        ("?limit=4", NAMES, False),
        ("?after_id=org/b&limit=1", ["c"], True),
        ("?after_id=c", ["d"], False),
        ("?after_id=d", [], False),
        ("?before_id=d&limit=2", ["org/b", "c"], True),
        ("?before_id=c", ["a", "org/b"], False),
        ("?lifecycle=retired", [], False),
        ("?lifecycle=retired&lifecycle=active", NAMES, False),
    ],
)
def test_anthropics_pages(query: str, names: list[str], more: bool) -> None:
    body = get(f"/v1/models{query}").json()
    assert [model["id"] for model in body["data"]] == names
    assert body["has_more"] == more
    assert body["first_id"] == (names[0] if names else None)
    assert body["last_id"] == (names[-1] if names else None)


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=1001", "limit=x", "after_id=nope", "after_id=a&before_id=c", "before_id="],
)
def test_a_wrong_page_is_refused_in_anthropics_form(query: str) -> None:
    response = get(f"/v1/models?{query}")
    assert response.status_code == 400
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert response.json()["type"] == "error"


def test_anthropics_sdk_reads_all_pages() -> None:
    async def asks() -> tuple[list[str], str]:
        engine = ScriptedEngine(says("x"), *(card(name=name) for name in NAMES), EMBEDDER)
        transport = httpx2.ASGITransport(cast(Any, served(engine)))
        async with httpx2.AsyncClient(transport=transport) as inner:
            client = AsyncAnthropic(api_key="none", base_url="http://manta", http_client=inner)
            listed = [model.id async for model in client.models.list(limit=1)]
            return listed, (await client.models.retrieve("org/b")).display_name

    assert asyncio.run(asks()) == (NAMES, "org/b")
