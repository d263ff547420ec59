"""Two nodes, one of which is lost without warning, or drained: what it did is done elsewhere."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.nodes import OPEN, SEEDS, CutError, both_serve, head_node, lose, replicas_on, streams
from tests.e2e.server import REPOSITORY, Server

SETTINGS = {"name": "tiny", "dtype": "float32", "num_replicas": 2, "num_cpus": 0.9}
ON_HEAD = {"ray_actor_options": {"num_cpus": 0, "resources": {"head": 0.01}}}
N_STREAMS = len(SEEDS)
# Serve's proxy spreads what comes at once by guesses of how busy each is: neither may take all.
ON_EACH = {"num_replicas": 2, "max_replicas_per_node": 1, "max_ongoing_requests": N_STREAMS - 1}


@contextmanager
def two_nodes(
    monkeypatch: pytest.MonkeyPatch, checkpoint: Path, folder: Path, openai: dict[str, Any]
) -> Iterator[tuple[Any, Server]]:
    """One replica of the model on either node, and all other deployments on the head; `openai`
    says where the ingress for `/v1` is.
    """
    router = {"model": str(checkpoint), **SETTINGS}
    placements = {"Router": ON_HEAD, "openai": openai}
    placements |= dict.fromkeys(("anthropic", "llama", "web"), ON_HEAD)
    config = {"applications": applications(router, placements)}
    with head_node(monkeypatch, folder / "data", num_cpus=1, resources={"head": 1}) as cluster:
        cluster.add_node(num_cpus=1)
        environment = {**OPEN, "RAY_ADDRESS": cluster.address}
        with Server(folder, router, environment, config) as running:
            running.eventually(lambda: both_serve(running))
            [worker] = cluster.worker_nodes
            assert replicas_on(worker, "MantaModel")
            yield cluster, running


def applications(router: dict[str, Any], placements: dict[str, Any]) -> list[dict[str, Any]]:
    served = yaml.safe_load((REPOSITORY / "serve_app" / "serve.yaml").read_text())
    found: list[dict[str, Any]] = served["applications"]  # in the order of `placements`
    for application, (deployment, placement) in zip(found, placements.items(), strict=True):
        application["deployments"] = [{"name": deployment, **placement}]
    found[0]["args"] = router
    return found


def losing_its_worker(cluster: Any, server: Server) -> Callable[[], None]:
    """Loses it, and asks for more at once."""

    def lose_and_ask() -> None:
        [worker] = cluster.worker_nodes
        lose(cluster, worker)
        body = {"prompt": "abc", "max_tokens": 4}
        with httpx.Client(base_url=server.url, timeout=60) as client:
            answers = [client.post("/v1/completions", json=body) for _ in range(20)]
        assert [answer.status_code for answer in answers] == [200] * 20

    return lose_and_ask


@pytest.fixture(scope="module")
def lasting(
    checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Any, Server]]:
    """Its own cluster, whose nodes are lost and drained one after the other."""
    folder = tmp_path_factory.mktemp("nodes")
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        two_nodes(monkeypatch, checkpoint, folder, ON_HEAD) as both,
    ):
        yield both


@pytest.fixture(scope="module")
def undisturbed(lasting: tuple[Any, Server]) -> list[str | BaseException]:
    said = asyncio.run(streams(lasting[1], lambda: None, N_STREAMS))
    assert all(isinstance(answer, str) for answer in said)
    return said


@pytest.mark.exhaustive  # tests/e2e/shared/test_chaos.py has replicas that die
@pytest.mark.timeout(600)
def test_no_stream_notices_that_its_replica_and_node_are_lost(
    lasting: tuple[Any, Server], undisturbed: list[str | BaseException]
) -> None:
    cluster, served = lasting
    before = served.failovers()
    assert (
        asyncio.run(streams(served, losing_its_worker(cluster, served), N_STREAMS)) == undisturbed
    )
    assert served.failovers() > before
    assert served.http.get("/health").status_code == 200


@pytest.mark.exhaustive  # a cluster of several machines takes a minute to start
@pytest.mark.timeout(600)
def test_a_drained_node_is_left_and_no_stream_notices(
    lasting: tuple[Any, Server], undisturbed: list[str | BaseException]
) -> None:
    cluster, served = lasting
    # None is there where the other test has run before.
    left = next(iter(cluster.worker_nodes), None) or cluster.add_node(num_cpus=1)
    served.eventually(lambda: bool(replicas_on(left, "MantaModel")) and both_serve(served))
    cluster.add_node(num_cpus=1)
    said = asyncio.run(streams(served, lambda: drain(cluster, left), N_STREAMS))
    assert said == undisturbed
    served.eventually(lambda: not replicas_on(left))
    served.eventually(lambda: both_serve(served))
    assert asyncio.run(streams(served, lambda: None, N_STREAMS)) == undisturbed


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


@pytest.mark.exhaustive  # tests/e2e/shared/test_chaos.py has an ingress that dies
@pytest.mark.timeout(600)
def test_an_ingress_that_is_lost_with_its_node_cuts_its_own_connections_alone(
    monkeypatch: pytest.MonkeyPatch, checkpoint: Path, tmp_path: Path
) -> None:
    # Else the proxy prefers the ingress of its own node.
    monkeypatch.setenv("RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING", "0")
    # Its own cluster: an ingress on either node.
    with two_nodes(monkeypatch, checkpoint, tmp_path, ON_EACH) as (cluster, served):
        undisturbed = asyncio.run(streams(served, lambda: None, N_STREAMS))
        said = asyncio.run(streams(served, losing_its_worker(cluster, served), N_STREAMS))
        cut = [isinstance(answer, CutError) for answer in said]
        assert 0 < sum(cut) < N_STREAMS
        for answer, was_cut, expected in zip(said, cut, undisturbed, strict=True):
            assert was_cut or answer == expected
        fewer = asyncio.run(streams(served, lambda: None, N_STREAMS - 1))
        assert fewer == undisturbed[:-1]
