"""Requests choose adapters of one model in every protocol, and keep them whatever happens."""

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
import torch
from transformers import AutoTokenizer, PreTrainedModel

from deployments.engine.loading.loader import load_model
from deployments.engine.loading.lora import merge_adapters
from tests.e2e.server import THROUGHPUT, Server
from tests.e2e.shared.models import ADAPTERS
from tests.e2e.shared.said import PAIR_REPLICAS, both_serve
from tests.e2e.shared.test_chaos import MAX_ROUNDS, Moment, Said, stream

pytestmark = THROUGHPUT
PROMPT = "Once upon a time"
ASKED: dict[str, Any] = {"prompt": PROMPT, "max_tokens": 48, "temperature": 0, "ignore_eos": True}
LONG: dict[str, Any] = {"max_tokens": 300, "temperature": 0, "ignore_eos": True, "logprobs": 1}
HI = [{"role": "user", "content": "Hi"}]
LOADED = {"lora_name": "rude", "lora_path": "rude", "base_model_name": "pair"}
NAMES = ("pair", "polite", "pair:terse")


def say(server: Server, model: str, **fields: object) -> str:
    answer = server.http.post("/v1/completions", json={**ASKED, "model": model, **fields})
    answer.raise_for_status()
    assert answer.json()["model"] == model
    text: str = answer.json()["choices"][0]["text"]
    return text


def merged(presets: Path, scales: Mapping[str, float]) -> PreTrainedModel:
    loaded = load_model(str(presets.with_name("tiny")), dtype=torch.float32)
    adapters = [(str(presets.with_name(name)), scale) for name, scale in scales.items()]
    merge_adapters(loaded, adapters)
    return loaded.model


def told_by(presets: Path, scales: Mapping[str, float]) -> str:
    """Returns the answer of transformers, with the adapters merged into the weights."""
    tokenizer = AutoTokenizer.from_pretrained(presets.with_name("tiny"))
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    model = merged(presets, scales)
    model.generation_config.eos_token_id = None
    whole = model.generate(ids, max_new_tokens=ASKED["max_tokens"], do_sample=False)
    text: str = tokenizer.decode(whole[0, ids.shape[1] :])
    return text


def refusal(server: Server, model: str) -> Any:
    answer = answer_of(server, model)
    assert answer.status_code in (404, 200)  # 200: it had begun, for the router took long
    error = answer.json()["error"]
    assert error["code"] == "model_not_found"
    return error


def answer_of(server: Server, model: str) -> httpx.Response:
    return server.http.post("/v1/completions", json={**ASKED, "model": model})


def test_each_adapter_answers_as_the_model_that_it_is_merged_into(
    pair: Server, presets: Path
) -> None:
    told = [
        told_by(presets, {name: ADAPTERS[name]} if name in ADAPTERS else {})
        for name in ("pair", "polite", "terse")
    ]
    assert len(set(told)) == 3
    assert [say(pair, name) for name in NAMES] == told
    both = {"polite": -0.5, "terse": 2.0}
    lora = [{"id": number, "scale": scale} for number, scale in enumerate(both.values())]
    assert say(pair, "pair", lora=lora) == told_by(presets, both)


def test_every_protocol_chooses_the_same(pair: Server) -> None:
    with openai.OpenAI(base_url=f"{pair.url}/v1", api_key="none", max_retries=0) as client:
        said = {}
        for name in NAMES:
            chat = client.chat.completions.create(
                model=name,
                messages=HI,  # type: ignore[arg-type]
                max_tokens=32,
                temperature=0,
            )
            response = client.responses.create(
                model=name, input="Hi", max_output_tokens=32, temperature=0
            )
            stored = client.responses.retrieve(response.id)
            assert (chat.model, response.model, stored.model) == (name, name, name)
            assert response.output_text == chat.choices[0].message.content
            said[name] = response.output_text
        parents = [getattr(model, "parent", None) for model in client.models.list()]
        assert parents[-2:] == ["pair", "pair"]
    assert len(set(said.values())) == 3
    with anthropic.Anthropic(base_url=pair.url, api_key="none", max_retries=0) as other:
        for name in NAMES:
            message = other.messages.create(
                model=name,
                messages=HI,  # type: ignore[arg-type]
                max_tokens=32,
                extra_body={"temperature": 0},
            )
            assert message.model == name
            assert (
                "".join(block.text for block in message.content if block.type == "text")
                == (said[name])
            )
        assert [model.id for model in other.models.list()][-3:] == ["pair", *ADAPTERS]


def test_default_scales_hold_for_every_request_that_names_the_model_alone(pair: Server) -> None:
    plain, polite = say(pair, "pair"), say(pair, "polite")

    def scale(*scales: float) -> None:
        body = [{"id": number, "scale": scale} for number, scale in enumerate(scales)]
        path = "/lora-adapters?model=pair"
        pair.http.post(path, json=body).raise_for_status()
        assert [entry["scale"] for entry in pair.http.get(path).json()] == [*scales, 0, 0][:2]

    scale(1.0)
    pair.eventually(lambda: say(pair, "pair") == polite)  # an ingress knows it a moment later
    assert say(pair, "pair", lora=[]) == plain
    scale()
    pair.eventually(lambda: say(pair, "pair") == plain)


def test_an_adapter_is_loaded_outlives_the_router_and_goes_without_disturbing_anybody(
    pair: Server,
) -> None:
    load, unload = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")
    assert "'rude'" in refusal(pair, "rude")["message"]
    answer = pair.http.post(load, json=LOADED)
    assert answer.text == "Success: LoRA adapter 'rude' added successfully."
    assert pair.http.post(load, json=LOADED).status_code == 400
    assert pair.http.post(load, json={**LOADED, "lora_path": "../polite"}).status_code == 400
    job = {**LONG, "model": "rude", "prompt": PROMPT, "max_tokens": 900}

    async def undisturbed() -> Said:
        async with httpx.AsyncClient(base_url=pair.url, timeout=120) as client:
            return await stream(client, job, Moment(0))

    async def unloaded_meanwhile() -> tuple[Said, bool]:
        async with httpx.AsyncClient(base_url=pair.url, timeout=120) as client:
            moment = Moment(5)
            running = asyncio.create_task(stream(client, job, moment))
            await moment.comes(running)
            gone = await client.post(unload, json={"lora_name": "rude"})
            assert gone.status_code == 200
            goes_on = not running.done()
            return await running, goes_on

    pair.kill("Router", "router")
    pair.eventually(pair.is_ready)
    alone = asyncio.run(undisturbed())
    for _ in range(MAX_ROUNDS):  # on a slow machine it may have ended before
        said, went_on = asyncio.run(unloaded_meanwhile())
        assert said.is_exactly(alone)
        if went_on:
            break
        pair.http.post(load, json=LOADED).raise_for_status()
    assert went_on
    pair.eventually(lambda: "error" in answer_of(pair, "rude").json())
    assert "'rude'" in refusal(pair, "rude")["message"]
    assert "'pair:rude'" in refusal(pair, "pair:rude")["message"]
    assert pair.http.post(unload, json={"lora_name": "rude"}).status_code == 404


@pytest.mark.exhaustive  # test_chaos.py has replicas that die
def test_streams_go_on_with_their_adapters_when_a_replica_dies(pair: Server) -> None:
    jobs = [{**LONG, "model": name, "prompt": f"{n} " * 20} for n, name in enumerate(NAMES * 4)]

    async def all_said(kill_after: int | None) -> list[Said]:
        moment, (victim, *_) = Moment(kill_after or 0), pair.replicas(*PAIR_REPLICAS)
        async with httpx.AsyncClient(base_url=pair.url, timeout=300) as client:
            running = [asyncio.create_task(stream(client, job, moment)) for job in jobs]
            if kill_after is not None:
                await moment.comes(*running)
                os.kill(victim, signal.SIGKILL)
            return await asyncio.gather(*running)

    def some_are_lost() -> bool:
        """They may all have ended."""
        pair.eventually(lambda: both_serve(pair))
        before = pair.failovers()
        assert all(map(Said.is_exactly, asyncio.run(all_said(400)), undisturbed))
        return pair.failovers() > before

    undisturbed = asyncio.run(all_said(None))
    assert any(some_are_lost() for _ in range(MAX_ROUNDS))
