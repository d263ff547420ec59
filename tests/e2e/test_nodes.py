"""Two nodes, one of which is drained: its replicas move, and the streams go on."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from ray.cluster_utils import Cluster

from tests.e2e.server import Server, free_port

SETTINGS = {"name": "tiny", "dtype": "float32", "num_replicas": 2, "num_cpus": 0.9}
TOKENS = 900
OPEN = {"RAY_AUTH_MODE": "disabled"}  # both nodes are this test's own


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in {**OPEN, "RAY_USAGE_STATS_ENABLED": "0"}.items():
        monkeypatch.setenv(name, value)
    head = {"num_cpus": 2, "include_dashboard": False}
    # Ray tries the port all the same, and leaves a socket behind when it is taken.
    made = Cluster(initialize_head=True, head_node_args={**head, "dashboard_port": free_port()})
    try:
        made.add_node(num_cpus=1)
        yield made
    finally:
        made.shutdown()


@pytest.fixture
def served(cluster: Any, checkpoint: Path, tmp_path: Path) -> Iterator[Server]:
    environment = {**OPEN, "RAY_ADDRESS": cluster.address}
    with Server(tmp_path, {"model": str(checkpoint), **SETTINGS}, environment) as running:
        running.eventually(lambda: both_serve(running), 60)
        yield running


def both_serve(server: Server) -> bool:
    return len(httpx.get(f"{server.url}/stats", timeout=30).json()["replicas"]) == 2


def replicas_on(node: Any) -> list[str]:
    """What the node's raylet has as children."""
    raylet = node.all_processes["raylet"][0].process.pid
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_text().replace("\0", " ")
            if parent == raylet and command.startswith("ray::ServeReplica:"):
                found.append(command)
    return found


def drain(cluster: Any, node: Any) -> None:
    command = [str(Path(sys.executable).parent / "ray"), "drain-node"]
    options = {
        "address": cluster.address,
        "node-id": node.node_id,
        "reason": "DRAIN_NODE_REASON_PREEMPTION",
        "reason-message": "test",
        "deadline-remaining-seconds": "120",
    }
    given = [f"--{name}={value}" for name, value in options.items()]
    subprocess.run([*command, *given], check=True, env={**os.environ, **OPEN})


async def streams(server: Server, disturb: Any) -> list[str]:
    """Four at once, each token by token; `disturb` is called when all have begun."""
    begun = asyncio.Semaphore(0)

    async def stream(client: httpx.AsyncClient, number: int) -> str:
        body = {
            "prompt": f"{number} " * 30,
            "max_tokens": TOKENS,
            "seed": number,
            "temperature": 0.8,
            "ignore_eos": True,
            "stream": True,
        }
        lines: list[str] = []
        async with client.stream("POST", f"{server.url}/v1/completions", json=body) as answer:
            async for line in answer.aiter_lines():
                if not lines:
                    begun.release()
                lines.append(line.removeprefix("data: "))
        chunks = [line for line in lines if line]
        assert chunks[-1] == "[DONE]"
        return "".join(json.loads(chunk)["choices"][0]["text"] for chunk in chunks[:-1])

    async with httpx.AsyncClient(timeout=120) as client:
        running = [asyncio.create_task(stream(client, number)) for number in range(4)]
        for _ in running:
            await begun.acquire()
        await asyncio.to_thread(disturb)
        return await asyncio.gather(*running)


@pytest.mark.timeout(600)
def test_a_drained_node_is_left_and_no_stream_notices(cluster: Any, served: Server) -> None:
    undisturbed = asyncio.run(streams(served, lambda: None))
    [worker] = cluster.worker_nodes
    assert any(":MantaModel" in command for command in replicas_on(worker))
    assert asyncio.run(streams(served, lambda: drain(cluster, worker))) == undisturbed
    served.eventually(lambda: not replicas_on(worker), 120)
    served.eventually(lambda: both_serve(served), 60)
    assert asyncio.run(streams(served, lambda: None)) == undisturbed
