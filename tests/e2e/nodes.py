"""A Ray cluster of several nodes on one machine, and streams of a served model that cross it."""

import asyncio
import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from ray.cluster_utils import Cluster

from tests.e2e.server import Server, free_port

TOKENS = 900
# Seeds with which each drawn token is ahead of the next one by 1e-4 or more, as logits: batches of
# other sizes round by 1e-6, undisturbed too.
SEEDS = (50, 61, 72, 53, 54, 5, 16, 57)
OPEN = {"RAY_AUTH_MODE": "disabled"}  # all nodes are the test's own


@contextmanager
def head_node(monkeypatch: pytest.MonkeyPatch, data: Path, **resources: Any) -> Iterator[Any]:
    """A cluster that others may be added to. Its processes store in `data`, and not at home."""
    own = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "XDG_DATA_HOME": str(data)}
    for name, value in {**OPEN, **own}.items():
        monkeypatch.setenv(name, value)
    head = {**resources, "include_dashboard": False}
    # Ray tries the port all the same, and leaves a socket behind when it is taken.
    made = Cluster(initialize_head=True, head_node_args={**head, "dashboard_port": free_port()})
    try:
        yield made
    finally:
        made.shutdown()


def both_serve(server: Server) -> bool:
    return len(server.http.get("/stats").json()["replicas"]) == 2


def replicas_on(node: Any, deployment: str = "") -> list[str]:
    """Returns the commands of the node's replicas: of one deployment, or of all without a name."""
    replicas = [
        command for command in children(node).values() if command.startswith("ray::ServeReplica:")
    ]
    return [command for command in replicas if f":{deployment}" in command]


def children(node: Any) -> dict[int, str]:
    """Maps the processes that the node's raylet has started to their commands."""
    raylet = node.all_processes["raylet"][0].process.pid
    found = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == raylet:
                found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ")
    return found


def lose(cluster: Any, node: Any) -> None:
    """All of its processes at one moment, as when its power goes."""
    started = children(node)
    cluster.remove_node(node, allow_graceful=False)
    for pid in started:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class CutError(Exception):
    """A stream that did not come to its end."""


async def stream(
    server: Server, client: httpx.AsyncClient, number: int, began: Callable[[], None]
) -> str:
    """The text, token by token. Raises CutError."""
    body = {
        "prompt": f"{number} " * 30,
        "max_tokens": TOKENS,
        "seed": SEEDS[number],
        "temperature": 0.8,
        "ignore_eos": True,
        "stream": True,
    }
    lines: list[str] = []
    try:
        async with client.stream("POST", f"{server.url}/v1/completions", json=body) as answer:
            assert answer.status_code == 200
            async for line in answer.aiter_lines():
                if not line.startswith("data: "):  # a comment, which ends a long silence
                    continue
                if not lines:
                    began()
                lines.append(line.removeprefix("data: "))
    except httpx.HTTPError as error:
        raise CutError(repr(error)) from error
    if not lines or lines.pop() != "[DONE]":  # a proxy may end for an ingress what that one did not
        raise CutError("it ended early")
    return "".join(json.loads(line)["choices"][0]["text"] for line in lines)


async def streams(
    server: Server, disturb: Callable[[], None], n: int = 4
) -> list[str | BaseException]:
    """Returns the texts of `n` streams at once, or their errors.

    `disturb` is called when all have begun.
    """
    begun = asyncio.Semaphore(0)
    async with httpx.AsyncClient(timeout=120) as client:
        running = [
            asyncio.create_task(stream(server, client, number, begun.release))
            for number in range(n)
        ]
        for _ in running:
            await begun.acquire()
        await asyncio.to_thread(disturb)
        return await asyncio.gather(*running, return_exceptions=True)
