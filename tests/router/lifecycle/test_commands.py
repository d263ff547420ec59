"""The router's decisions when things happen at once, with Serve's part written down."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from ray.serve.schema import ApplicationStatus

from deployments.contract.errors import ErrorKind
from deployments.contract.model_status import ModelState
from deployments.model.settings import ModelSettings
from deployments.router.lifecycle import commands, estimate, lifecycle
from deployments.router.lifecycle.applications import DeployedApplication
from deployments.router.lifecycle.capacity import UNLIMITED
from deployments.router.lifecycle.lifecycle import Lifecycle
from deployments.router.lifecycle.model_entry import ModelEntry
from deployments.router.presets.sources import Sources
from deployments.router.settings import CapacitySettings, RoutingSettings

RUNNING = DeployedApplication(ApplicationStatus.RUNNING, running=frozenset("a"))


class Serve:
    """Serve as the router meets it: tells what it is told to, and records what it is asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.applications: dict[str, DeployedApplication] = {}
        self.is_current = True
        self.limits = UNLIMITED
        self.nodes = [8.0]  # their cores
        self.busy = 0
        self.when_asked: Callable[[], Awaitable[None]] | None = None
        self.taken_over: list[str] = []
        self.deleted: list[str] = []
        self.deployed: list[ModelSettings] = []
        monkeypatch.setattr(commands, "delete", self.deleted.append)
        monkeypatch.setattr(commands, "deploy", self.deployed.append)
        monkeypatch.setattr(commands, "redeploy", self.deployed.append)
        monkeypatch.setattr(commands, "model_handle", lambda _: self)
        monkeypatch.setattr(
            lifecycle, "read_applications_as", lambda _: (dict(self.applications), self.is_current)
        )
        monkeypatch.setattr(lifecycle, "taken_over", lambda _: self.taken_over)
        monkeypatch.setattr(lifecycle, "cluster_limits", lambda _: self.limits)
        monkeypatch.setattr(lifecycle, "node_cpus", lambda: self.nodes)
        monkeypatch.setattr(estimate, "node_cpus", lambda: self.nodes)

    def broadcast(self, method: str) -> "Serve":
        assert method == "busy"
        return self

    async def results_async(self, *, timeout_s: float, return_exceptions: bool) -> list[object]:
        if self.when_asked is not None:
            await self.when_asked()
        return [self.busy]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    return Serve(monkeypatch)


def write(file: Path, lines: str = "") -> None:
    (file.parent / "config.json").write_text("{}")
    file.write_text(f"[m]\nmodel = {file.parent}\nnum-cpus = 1\n{lines}")


async def started(file: Path, capacity: CapacitySettings | None = None) -> Lifecycle:
    sources = Sources(presets=str(file))
    fleet = Lifecycle("me", sources, capacity or CapacitySettings(), RoutingSettings())
    await fleet.start()
    return fleet


async def asked(fleet: Lifecycle, entry: ModelEntry) -> None:
    """Waits until the commands that are under way have ended."""
    while fleet._commands._tasks:
        await asyncio.gather(*fleet._commands._tasks)
    fleet.check()


def test_a_router_that_has_a_successor_leaves_its_models_alone(
    serve: Serve, tmp_path: Path
) -> None:
    async def play(is_current: bool) -> list[str]:
        serve.applications = {"model-new": RUNNING}
        serve.is_current = is_current
        fleet = await started(tmp_path / "models.ini")
        entry = fleet.registry["m"]
        refused = fleet.load(entry)
        await asked(fleet, entry)
        assert (refused is not None and refused.kind is ErrorKind.UNAVAILABLE) is not is_current
        assert (entry.state is ModelState.LOADING) is is_current
        return serve.deleted

    write(tmp_path / "models.ini")
    assert asyncio.run(play(False)) == []
    assert asyncio.run(play(True)) == ["model-new"]


@pytest.mark.parametrize("older", [[], ["model-m"]])
def test_a_start_says_that_it_takes_over_a_graph(
    serve: Serve, tmp_path: Path, older: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / "models.ini")
    serve.taken_over = older
    asyncio.run(started(tmp_path / "models.ini"))
    said = [message for message in caplog.messages if "takes over" in message]
    assert len(said) == len(older)
    assert all("RAY_ADDRESS=local" in message for message in said)


def test_an_unload_counts_though_the_model_was_about_to_be_spared(
    serve: Serve, tmp_path: Path
) -> None:
    async def play() -> None:
        fleet = await started(tmp_path / "models.ini")
        entry = fleet.registry["m"]
        serve.busy = 1
        fleet._commands.evict(entry)
        await asked(fleet, entry)
        assert (entry.state, serve.deleted) == (ModelState.READY, [])

        async def unload() -> None:
            assert fleet.unload(entry) is None

        serve.when_asked = unload
        fleet._commands.evict(entry)
        await asked(fleet, entry)
        assert (entry.state, serve.deleted) == (ModelState.UNLOADING, ["model-m"])
        assert entry.status.unloads == 1

    write(tmp_path / "models.ini")
    serve.applications = {"model-m": RUNNING}
    asyncio.run(play())


def test_settings_that_come_while_a_model_is_about_to_go_reach_it_when_it_stays(
    serve: Serve, tmp_path: Path
) -> None:
    async def play() -> None:
        fleet = await started(tmp_path / "models.ini")
        entry = fleet.registry["m"]
        await asked(fleet, entry)

        async def edit() -> None:
            write(tmp_path / "models.ini", "replicas = 2")
            assert await fleet.reload() is None

        serve.busy, serve.when_asked = 1, edit
        fleet._commands.evict(entry)
        await asked(fleet, entry)
        assert entry.state is ModelState.READY
        assert [settings.num_replicas for settings in serve.deployed] == [1, 2]

    write(tmp_path / "models.ini")
    serve.applications = {"model-m": RUNNING}
    asyncio.run(play())


def test_a_failure_is_forgotten_with_the_settings_that_failed(serve: Serve, tmp_path: Path) -> None:
    async def play() -> None:
        fleet = await started(tmp_path / "models.ini")
        entry = fleet.registry["m"]
        entry.fail("no such adapter", 0.0)
        assert await fleet.reload() is None
        assert entry.state is ModelState.FAILED
        write(tmp_path / "models.ini", "page-size = 8")
        assert await fleet.reload() is None
        assert (entry.state, entry.status.message) == (ModelState.UNLOADED, "")

    write(tmp_path / "models.ini")
    asyncio.run(play())


@pytest.mark.parametrize("autoload", [False, True])
def test_a_request_clears_the_failure_only_of_what_it_may_load(
    serve: Serve, tmp_path: Path, autoload: bool
) -> None:
    async def play() -> None:
        fleet = await started(tmp_path / "models.ini", CapacitySettings(autoload=autoload))
        entry = fleet.registry["m"]
        entry.fail("no such adapter", float("-inf"))
        fleet.retry(entry)
        assert fleet.ensure_loaded(entry, "me", float("inf")) is None
        await asked(fleet, entry)
        assert entry.state is (ModelState.LOADING if autoload else ModelState.FAILED)

    write(tmp_path / "models.ini")
    asyncio.run(play())


def test_what_is_not_loaded_is_planned_with_the_cores_of_the_nodes_of_now(
    serve: Serve, tmp_path: Path
) -> None:
    async def play() -> list[float]:
        fleet = await started(tmp_path / "models.ini")
        cpus = []
        for applications, nodes in (({}, [64.0]), ({"model-m": RUNNING}, [8.0]), ({}, [8.0])):
            serve.applications, serve.nodes = applications, nodes
            await fleet._read_serve()
            cpus.append(fleet.registry["m"].needs.cpus)
        return cpus

    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "models.ini").write_text(f"[m]\nmodel = {tmp_path}\n")
    assert asyncio.run(play()) == [32, 32, 4]


def test_a_model_of_the_start_that_found_no_gpu_is_loaded_when_there_is_one(
    serve: Serve, tmp_path: Path
) -> None:
    async def play() -> None:
        fleet = await started(tmp_path / "models.ini")
        entry = fleet.registry["m"]
        assert entry.status.message == "it needs 1 GPUs and can have 0"
        serve.limits = UNLIMITED
        entry.failed_at = float("-inf")
        watching = asyncio.create_task(fleet.watch())
        async with asyncio.timeout(60):
            while entry.state is not ModelState.LOADING:
                await fleet.changes.wait(fleet.changes.version, 60)
        watching.cancel()
        await asked(fleet, entry)
        assert [settings.name for settings in serve.deployed] == ["m"]

    write(tmp_path / "models.ini", "num-gpus = 1\nload-on-startup = true")
    serve.limits = UNLIMITED._replace(gpus=0)
    asyncio.run(play())


def test_a_failed_model_of_the_start_is_left_alone_when_an_operator_unloads_it(
    serve: Serve, tmp_path: Path
) -> None:
    async def play() -> None:
        fleet = await started(tmp_path / "models.ini")
        entry = fleet.registry["m"]
        assert entry.is_retry_due(float("inf"))
        assert fleet.unload(entry) is None
        assert entry.state is ModelState.UNLOADED
        assert not entry.is_retry_due(float("inf"))
        assert fleet.unload(entry) is not None

    write(tmp_path / "models.ini", "num-gpus = 1\nload-on-startup = true")
    serve.limits = UNLIMITED._replace(gpus=0)
    asyncio.run(play())
