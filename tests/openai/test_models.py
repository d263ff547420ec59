"""The list of models and each of them, as OpenAI's SDK reads them."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, NotFoundError
from openai.types import Model
from pydantic import TypeAdapter

from deployments.contract.model_status import ModelState, ModelStatus
from tests.ingress.engines import ScriptedEngine, says
from tests.openai.pooling import EMBEDS, SCORES, known
from tests.openai.serving import http, sdk, served
from tests.text.cards import card


def test_the_only_model_may_be_found_by_any_name() -> None:
    class Only(ScriptedEngine):
        async def statuses(self, timeout_s: float = 1.0) -> list[ModelStatus]:
            return [replace(status, has_any_name=True) for status in await super().statuses()]

    async def asks() -> str:
        async with sdk(served(Only(says("x")))) as client:
            return (await client.models.retrieve("gpt-5")).id

    assert asyncio.run(asks()) == "tiny"


async def test_models_are_listed_and_retrieved() -> None:
    engine = ScriptedEngine(says("x"), card(), card(name="org/model"))
    async with sdk(served(engine)) as client:
        listed = await client.models.list()
        one = await client.models.retrieve("org/model")
        with pytest.raises(NotFoundError) as missing:
            await client.models.retrieve("nope")
    assert missing.value.code == "model_not_found"
    assert [model.id for model in listed.data] == ["tiny", "org/model"]
    assert one.to_dict() == {
        "id": "org/model",
        "object": "model",
        "created": 1_700_000_000,
        "owned_by": "manta",
        "root": "org/model",
        "parent": None,
        "aliases": [],
        "tags": [],
        "starters": [],
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "status": {"value": "loaded", "state": "ready", "replicas": 1, "replicas_target": 1},
        "max_model_len": 512,
        "tasks": ["generate"],
        "meta": {"n_vocab": card().vocab_size, "n_ctx": 512, "n_ctx_train": 512},
    }


async def listed(client: AsyncOpenAI) -> list[Any]:
    return [model.to_dict() for model in (await client.models.list()).data]


async def test_models_say_what_they_can_be_asked_for() -> None:
    engine = ScriptedEngine(says("x"), known(EMBEDS, "e"), known(SCORES, "s"), card(name="g"))
    async with sdk(served(engine)) as client:
        embeds, scores, generates = await listed(client)
    assert (embeds["tasks"], embeds["meta"]["n_embd"]) == (["embed"], 4)
    assert scores["tasks"] == ["score"]
    assert (generates["tasks"], "n_embd" in generates["meta"]) == (["generate"], False)


async def test_what_a_model_takes_is_known_before_it_is_loaded_or_left_out() -> None:
    engine = ScriptedEngine(says("x"), card(name="sees"), card(name="unknown"))
    engine.states = dict.fromkeys(engine.cards, ModelState.UNLOADED)
    engine.modalities = {"sees": ("text", "image")}
    async with sdk(served(engine)) as client:
        sees, unknown = await listed(client)
    assert sees["architecture"]["input_modalities"] == ["text", "image"]
    assert "architecture" not in unknown


def get(path: str) -> httpx.Response:
    async def asks() -> httpx.Response:
        async with http(served(ScriptedEngine(says("x"), card()))) as client:
            return await client.get(path)

    return asyncio.run(asks())


def test_every_model_is_strictly_openais() -> None:
    body = get("/v1/models").json()
    assert body["object"] == "list"
    for model in body["data"]:
        TypeAdapter(Model).validate_python(model, strict=True)
    assert get("/v1/models/nope").json()["error"]["param"] == "model"
