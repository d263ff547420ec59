"""A real replica is killed in mid-answer: layers of every kind go on elsewhere to the letter."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from transformers import AutoModelForCausalLM

from deployments.media.images import as_png
from tests.checkpoints import byte_tokenizer
from tests.e2e.server import THROUGHPUT_MODE, Server
from tests.e2e.shared.test_chaos import MAX_ROUNDS, Moment, Said, stream
from tests.engine.media.checkpoint import save_seeing
from tests.engine.media.seeing import picture
from tests.media.serving import data_url
from tests.models import CONFIGS

# tests/engine/test_laws_layers.py says it of engines, tests/e2e/shared/test_chaos.py of full
# attention and all protocols.
pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(900)]

SEES = "llava"  # each of its streams has another image
# Windows, states beside attention and alone, latents, row by row without states and with them.
KINDS = ("gemma3", "qwen3_next", "mamba2", "deepseek_v3", "diffllama", "rwkv", SEES)
N_STREAMS, N_TOKENS = 6, 150
PRESETS = "version = 1\n[*]\ndtype = float32\nnum-cpus = 0.4\nreplicas = 2\nn-pages = 1024\n"


def save_model(folder: Path, kind: str) -> None:
    if kind == SEES:
        save_seeing(folder)
        return
    tokenizer = byte_tokenizer()
    config = CONFIGS[kind]()
    config.vocab_size = len(tokenizer)
    AutoModelForCausalLM.from_config(config).float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Its models come one after the other, each with two replicas."""
    folder = tmp_path_factory.mktemp("kinds")
    for kind in KINDS:
        save_model(folder / kind, kind)
    presets = folder / "models.ini"
    models = [f"[{kind}]\nmodel = {kind}\n" for kind in KINDS]
    presets.write_text(f"{PRESETS}{''.join(models)}load-on-startup = true\n")
    router = {"presets": str(presets), "models_max": 1}
    with Server(tmp_path_factory.mktemp("server"), router, THROUGHPUT_MODE) as running:
        yield running


def jobs(kind: str) -> list[dict[str, Any]]:
    return [
        {
            "model": kind,
            "max_tokens": N_TOKENS + number,
            "temperature": 0,
            "ignore_eos": True,
            **(_seen(number) if kind == SEES else {"prompt": f"{number} " * 20, "logprobs": 1}),
        }
        for number in range(N_STREAMS)
    ]


def _seen(number: int) -> dict[str, Any]:
    url = data_url(as_png(picture(number)))
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What?"}]
    return {"messages": [{"role": "user", "content": parts}], "logprobs": True}


async def streams(server: Server, kind: str, kill_after: int | None) -> list[Said]:
    moment, (victim, *_) = Moment(kill_after or 0), server.replicas("MantaModel", f"model-{kind}")
    async with httpx.AsyncClient(base_url=server.url, timeout=300) as client:
        running = [asyncio.create_task(stream(client, job, moment)) for job in jobs(kind)]
        if kill_after is not None:
            await moment.comes(*running)
            os.kill(victim, signal.SIGKILL)
        return await asyncio.gather(*running)


def both_serve(server: Server, kind: str) -> bool:
    replicas = server.http.get("/stats").json()["replicas"]
    return len([replica for replica in replicas if replica["model"] == kind]) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_answers_outlive_their_replica(server: Server, kind: str) -> None:
    asked = {"model": kind, "prompt": "abc", "max_tokens": 1}
    server.http.post("/v1/completions", json=asked, timeout=300).raise_for_status()

    def some_are_lost() -> bool:
        """They may all have ended."""
        server.eventually(lambda: both_serve(server, kind))
        before = server.failovers()
        said = asyncio.run(streams(server, kind, N_STREAMS * N_TOKENS // 6))
        assert all(map(Said.is_exactly, said, undisturbed))
        return server.failovers() > before

    server.eventually(lambda: both_serve(server, kind))
    undisturbed = asyncio.run(streams(server, kind, None))
    assert any(some_are_lost() for _ in range(MAX_ROUNDS))
