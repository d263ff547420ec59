"""A replica that really runs out of memory in a step: no answer that fits is lost, and it lives."""

import asyncio
import json
import resource
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.checkpoints import byte_tokenizer
from tests.e2e.server import Server

CONTEXT = 1280
# A token's activations take 1.5 MiB, and its keys and values 256 KiB.
WIDE = {"intermediate_size": 1 << 17, "num_attention_heads": 16, "head_dim": 2048}
SETTINGS = {
    "name": "wide",
    "dtype": "float32",
    "num_cpus": 1,
    "page_size": 64,
    "n_pages": 60,
    "max_running": 16,
    "max_batch_tokens": 1024,
}
# Less than a step of several prompts takes, and than the longest one's keys and values (275 MiB),
# with what the allocator keeps of earlier steps; more than a large one's keys and values (63 MiB)
# take with the stacks of threads that come while it runs.
MARGIN = 180 << 20
SHORT, LARGE = range(4), range(4, 8)


@dataclass
class Seen:
    """What a client saw of one stream."""

    text: str = ""
    reasons: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def take(self, line: str) -> None:
        if line.startswith("data: {"):
            said = json.loads(line.removeprefix("data: "))
            if "error" in said:
                self.errors.append(said["error"]["message"])
                return
            [choice] = said["choices"]
            self.text += choice["text"]
            self.reasons += [choice["finish_reason"]] if choice["finish_reason"] else []


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    model = save_wide_checkpoint(tmp_path_factory.mktemp("wide"))
    folder = tmp_path_factory.mktemp("memory")
    with Server(folder, {"model": str(model), **SETTINGS}) as running:
        yield running


def save_wide_checkpoint(path: Path) -> Path:
    """Small weights, and steps that take far more memory than they do."""
    tokenizer = byte_tokenizer()
    torch.manual_seed(0)
    config = LlamaConfig(
        **WIDE,
        vocab_size=len(tokenizer),
        hidden_size=64,
        num_hidden_layers=1,
        max_position_embeddings=CONTEXT,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,
    )
    LlamaForCausalLM(config).float().save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@contextmanager
def little_memory(pid: int) -> Iterator[None]:
    """The process may take no more than it has now and MARGIN."""
    before = resource.prlimit(pid, resource.RLIMIT_DATA)
    resource.prlimit(pid, resource.RLIMIT_DATA, (data_bytes(pid) + MARGIN, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_DATA, before)


def data_bytes(pid: int) -> int:
    """What the limit counts: memory that is the process's own and can be written."""
    lines = (Path("/proc") / str(pid) / "status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:"))


def job(number: int, salt: str) -> dict[str, Any]:
    """Greedy ones, and seeded ones."""
    return {
        "prompt": f"{number}" * (250 if number in LARGE else 20),
        "max_tokens": 6 if number in LARGE else 40,
        "temperature": number % 2 * 0.9,
        "seed": number,
        "ignore_eos": True,
        "cache_salt": salt,
        "stream": True,
    }


async def all_at_once(server: Server) -> list[Seen]:
    """Prompts whose step is large arrive while short sequences are being decoded; nothing of any
    is cached.
    """
    salt = uuid.uuid4().hex
    decoding = asyncio.Semaphore(0)

    async def stream(client: httpx.AsyncClient, number: int) -> Seen:
        seen = Seen()
        request = client.stream("POST", f"{server.url}/v1/completions", json=job(number, salt))
        async with request as answer:
            if answer.status_code != 200:
                raise AssertionError((await answer.aread()).decode())
            lines = answer.aiter_lines()
            seen.take(await anext(lines))
            decoding.release()
            async for line in lines:
                seen.take(line)
        return seen

    async with httpx.AsyncClient(timeout=120) as client:
        short = [asyncio.create_task(stream(client, number)) for number in SHORT]
        for _ in short:
            await decoding.acquire()
        large = [asyncio.create_task(stream(client, number)) for number in LARGE]
        return await asyncio.gather(*short, *large)


def engine_stats(server: Server) -> dict[str, float]:
    """Of the only replica."""
    [stats] = server.http.get("/stats").json()["replicas"]
    assert isinstance(stats, dict)
    return stats


def longest(server: Server) -> httpx.Response:
    """Each of its steps needs all of its keys and values, of which most are cached."""
    body = {"prompt": "long " * 220, "max_tokens": 2, "temperature": 0, "ignore_eos": True}
    return server.http.post("/v1/completions", json=body)


def text(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    said: str = answer.json()["choices"][0]["text"]
    return said


@pytest.mark.timeout(600)
def test_a_step_that_finds_no_memory_costs_nobody_an_answer(served: Server) -> None:
    replicas = served.replicas("MantaModel")
    undisturbed = asyncio.run(all_at_once(served))
    assert [seen.reasons for seen in undisturbed] == [["length"]] * len(undisturbed)
    before = engine_stats(served)
    with little_memory(*replicas):
        assert asyncio.run(all_at_once(served)) == undisturbed
        assert served.http.get("/health").status_code == 200
    after = engine_stats(served)
    assert after["failed_steps"] > before["failed_steps"]
    assert after["retried_rows"] > before["retried_rows"]
    assert served.replicas("MantaModel") == replicas


@pytest.mark.timeout(600)
def test_only_what_can_not_be_computed_alone_fails(served: Server) -> None:
    replicas = served.replicas("MantaModel")
    expected = text(longest(served))
    undisturbed = asyncio.run(all_at_once(served))

    async def with_the_longest() -> tuple[list[Seen], httpx.Response]:
        others = all_at_once(served)
        return await asyncio.gather(others, asyncio.to_thread(longest, served))

    with little_memory(*replicas):
        others, answer = asyncio.run(with_the_longest())
        assert served.http.get("/health").status_code == 200
    assert others == undisturbed
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "out_of_memory"
    disturbed = engine_stats(served)
    assert text(longest(served)) == expected
    assert asyncio.run(all_at_once(served)) == undisturbed
    assert engine_stats(served)["failed_steps"] == disturbed["failed_steps"] > 0
    assert served.replicas("MantaModel") == replicas
