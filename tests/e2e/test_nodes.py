"""Two nodes, one of which is drained: its replicas move, and the streams go on."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.nodes import OPEN, both_serve, head_node, replicas_on, streams
from tests.e2e.server import Server

SETTINGS = {"name": "tiny", "dtype": "float32", "num_replicas": 2, "num_cpus": 0.9}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with head_node(monkeypatch, num_cpus=2) as made:
        made.add_node(num_cpus=1)
        yield made


@pytest.fixture
def served(cluster: Any, checkpoint: Path, tmp_path: Path) -> Iterator[Server]:
    environment = {**OPEN, "RAY_ADDRESS": cluster.address}
    with Server(tmp_path, {"model": str(checkpoint), **SETTINGS}, environment) as running:
        running.eventually(lambda: both_serve(running))
        yield running


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


@pytest.mark.timeout(600)
def test_a_drained_node_is_left_and_no_stream_notices(cluster: Any, served: Server) -> None:
    undisturbed = asyncio.run(streams(served, lambda: None))
    [worker] = cluster.worker_nodes
    assert replicas_on(worker, "MantaModel")
    assert asyncio.run(streams(served, lambda: drain(cluster, worker))) == undisturbed
    served.eventually(lambda: not replicas_on(worker))
    served.eventually(lambda: both_serve(served))
    assert asyncio.run(streams(served, lambda: None)) == undisturbed
