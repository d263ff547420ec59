"""One replica over several processes, on a real Ray cluster: it answers, sleeps and dies as one."""

import os
import select
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from ray import serve
from ray.exceptions import RayError

from deployments.contract.events import TokenEvent
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.core import EngineCore
from deployments.engine.loading.loader import load_model
from deployments.model.application import model_application
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings
from tests.checkpoints import save_checkpoint
from tests.live.fleet import LIMITS, delete, read_card, settings

pytestmark = pytest.mark.timeout(900)

PATIENCE_S = 120
RANK, REPLICA = "ray::Rank", f"ray::ServeReplica:model-ranks:{MODEL_DEPLOYMENT}"
REQUESTS = [
    GenerationRequest(
        request_id=f"r{i}",
        prompt_ids=tuple(range(5, 25 + i)),
        sampling=SamplingParams(temperature=0),
        max_tokens=12,
        ignore_eos=True,
    )
    for i in range(3)
]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def expected(checkpoint: Path) -> list[tuple[int, ...]]:
    core = EngineCore(load_model(str(checkpoint), dtype=torch.float32), frozenset(), LIMITS)
    try:
        events = [list(core.run([request])) for request in REQUESTS]
    finally:
        core.shutdown()
    return [ids(event for _, event in those) for those in events]


@contextmanager
def deployed(of_model: ModelSettings) -> Iterator[None]:
    serve.run(model_application(of_model), name=of_model.application, route_prefix=None)
    try:
        yield
    finally:
        delete(of_model.application)


@pytest.fixture(scope="module")
def served(checkpoint: Path) -> Iterator[None]:
    """A model over two ranks, which sleeps when nobody asks, and leaves nothing when it is deleted.
    A test that deploys another model of this name stands before those that use it.
    """
    with ExitStack() as stack, deployed(replace(over_two(checkpoint), sleep_idle_s=5.0)):
        yield
        answers()  # so that it is awake
        [rank] = processes(RANK)
        stack.enter_context(ending(rank))


def over_two(checkpoint: Path) -> ModelSettings:
    return replace(settings(checkpoint, "ranks"), tensor_parallel=2)


def ids(events: Iterator[TokenEvent]) -> tuple[int, ...]:
    """Raises RuntimeError with the kind of the error that they end in."""
    found: list[int] = []
    for event in events:
        if event.error is not None:
            raise RuntimeError(event.error.kind)
        found += event.token_ids
    return tuple(found)


def answers() -> list[tuple[int, ...]]:
    model = serve.get_deployment_handle(MODEL_DEPLOYMENT, "model-ranks")
    card = read_card(model)
    generate = model.options(stream=True, method_name="generate")
    return [ids(generate.remote(None, card, request)) for request in REQUESTS]


def processes(title: str) -> list[int]:
    """Returns the cluster's processes with this title. All of them descend from this process."""
    parents, found = {}, []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(status.parent.name)] = int(status.read_text().rpartition(")")[2].split()[1])
            if status.with_name("cmdline").read_text().startswith(title):
                found.append(int(status.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return [pid for pid in found if os.getpid() in _ancestors(pid, parents)]


def _ancestors(pid: int, parents: dict[int, int]) -> Iterator[int]:
    while pid in parents:
        pid = parents[pid]
        yield pid


@contextmanager
def ending(pid: int) -> Iterator[None]:
    """Waits for the end of a process when the block is left."""
    process = os.pidfd_open(pid)
    try:
        yield
        ended, _, _ = select.select([process], [], [], PATIENCE_S)
        assert ended, "the process lives on"
    finally:
        os.close(process)


def test_a_model_that_ranks_cannot_share_is_refused_with_the_reason(checkpoint: Path) -> None:
    odd = replace(over_two(checkpoint), tensor_parallel=4)
    with pytest.raises(RuntimeError), deployed(odd):
        pass
    application = serve.status().applications[odd.application]
    message = application.deployments[MODEL_DEPLOYMENT].message
    assert "4 ranks can't share 4 attention heads and 2 key-value heads" in message


@pytest.mark.usefixtures("served")
def test_two_ranks_answer_as_one_and_end_while_their_model_sleeps(
    expected: list[tuple[int, ...]],
) -> None:
    assert answers() == expected
    [rank] = processes(RANK)
    with ending(rank):
        pass
    assert answers() == expected


# tests/model/test_sleeper.py says it of an engine that cannot go on
@pytest.mark.usefixtures("served")
def test_a_rank_that_dies_while_idle_takes_its_replica_along_and_another_one_answers(
    expected: list[tuple[int, ...]],
) -> None:
    answers()
    [rank], [replica] = processes(RANK), processes(REPLICA)  # to look for them takes a while
    assert answers() == expected  # so that it does not sleep when its rank is killed
    with ending(replica):
        os.kill(rank, signal.SIGKILL)
    assert _asked_again() == expected
    assert processes(REPLICA) != [replica]


@pytest.mark.usefixtures("served")
def test_a_replica_that_is_killed_leaves_no_rank(expected: list[tuple[int, ...]]) -> None:
    assert answers() == expected
    [rank], [replica] = processes(RANK), processes(REPLICA)
    with ending(rank):
        os.kill(replica, signal.SIGKILL)
    assert _asked_again() == expected
    assert rank not in processes(RANK)


def _asked_again() -> list[tuple[int, ...]]:
    """Serve may still name the replica that has ended."""
    try:
        return answers()
    except RayError:
        return answers()
