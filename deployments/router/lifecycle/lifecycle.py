"""Loads and unloads models, by requests, by the room that there is, and by Serve's state of each.

Serve's state is the truth. It is read at one place, for all models at once, and a router that
starts finds in it what its predecessor loaded.
"""

import asyncio
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import replace

from ray.serve.schema import ApplicationStatus

from deployments.contract.errors import ErrorKind, RequestError
from deployments.contract.model_status import ModelState
from deployments.model.application import node_cpus
from deployments.model.weights_form import weights_form
from deployments.router.lifecycle.applications import (
    UNREACHABLE,
    DeployedApplication,
    read_applications_as,
    taken_over,
)
from deployments.router.lifecycle.capacity import Capacity, CapacityPlan, ResourceHolder, Resources
from deployments.router.lifecycle.change_feed import ChangeFeed
from deployments.router.lifecycle.commands import Commands
from deployments.router.lifecycle.estimate import cluster_limits, cpu_needs, model_needs
from deployments.router.lifecycle.modalities import input_modalities
from deployments.router.lifecycle.model_entry import ModelEntry, Phase
from deployments.router.lifecycle.registry import Registry
from deployments.router.presets.ini_file import PresetError
from deployments.router.presets.sources import Sources
from deployments.router.settings import CapacitySettings, Preset, RoutingSettings

log = logging.getLogger("ray.serve")

POLL_S = 0.5
QUIET_POLL_S = 1.5  # while nothing changes
OPERATOR = "the operator"  # the lessee of models that are loaded without a request
BEING_REPLACED = RequestError(ErrorKind.UNAVAILABLE, "The router is being replaced; try again soon")


class Lifecycle:
    """Belongs to one event loop. `now` is the monotonic clock's, everywhere."""

    def __init__(
        self,
        replica_id: str,
        sources: Sources,
        settings: CapacitySettings,
        routing: RoutingSettings,
    ) -> None:
        self._replica_id = replica_id
        self.registry = Registry(routing)
        self.capacity = Capacity()
        self.changes = ChangeFeed()
        self._sources = sources
        self._settings = settings
        self._commands = Commands(self._changed)
        self._orphans: set[str] = set()  # applications that no model owns
        self._presets_stamp = presets_stamp(sources)
        self._reading = asyncio.Lock()
        self._wake = asyncio.Event()
        self._states: dict[str, ModelState] = {}
        self._reachable = True
        self._is_current = True  # False when another router has taken over

    async def start(self) -> None:
        """Adopts the applications that run. Raises PresetError, or one of UNREACHABLE."""
        self.registry.take(await asyncio.to_thread(read_presets, self._sources, self._settings))
        await self._read_serve()
        if found := await asyncio.to_thread(taken_over, self._replica_id):
            log.warning(
                "takes over the graph that ran in this Ray cluster, with %s; "
                "RAY_ADDRESS=local starts one beside it",
                ", ".join(sorted(found)),
            )
        for entry in self.registry:
            if entry.phase in (Phase.STARTING, Phase.UP):
                log.info("model %s runs already (%s)", entry.name, entry.state)
                self._commands.change(entry)
        self._load_on_startup()
        self.plan()

    async def watch(self) -> None:
        """Runs for ever, as the router's background work."""
        while True:
            await self._reload_if_changed()
            await self._read_serve_if_reachable()
            self._retry_failed()
            self.plan()
            await self._pause()

    def check(self) -> None:
        self._commands.check()

    def ensure_loaded(self, entry: ModelEntry, lessee: str, until: float) -> RequestError | None:
        """Protects a loaded model from eviction, and queues one that is not loaded."""
        waits = entry.name in self.capacity.waiting
        if entry.phase in (Phase.STARTING, Phase.UP) or waits:
            self.capacity.lease(entry.name, lessee, until)
        elif entry.failure:
            return None  # its status says so
        elif not self._is_current:
            return None  # its successor loads it: the next call goes there
        elif not self._settings.autoload:
            return RequestError(ErrorKind.UNAVAILABLE, f"The model {entry.name!r} is not loaded")
        else:
            self._enqueue(entry, lessee, until)
        return None

    def retry(self, entry: ModelEntry) -> None:
        """Lets a failed model be loaded again, after a pause."""
        if self._settings.autoload and entry.may_be_asked_for(time.monotonic()):
            entry.clear_failure()

    def load(self, entry: ModelEntry) -> RequestError | None:
        """Starts the load at once, with an eviction if needed. Refused when none is possible."""
        now = time.monotonic()
        if not self._is_current:
            return BEING_REPLACED
        if entry.phase is Phase.UP:
            failed = entry.state is ModelState.FAILED
            return refusal(entry, "tries to wake" if failed else "is loaded already")
        if entry.phase is Phase.STARTING:
            return None
        if shortage := self.capacity.shortage(entry.needs, self._holders(now)):
            return refusal(entry, f"does not fit: {shortage}")
        if not self.capacity.admits(entry.name, entry.needs, self._holders(now), now):
            message = f"There is no room for {entry.name!r}: all that is loaded is in use"
            return RequestError(ErrorKind.OVERLOADED, message)
        entry.clear_failure()
        self._enqueue(entry, OPERATOR, float("inf"))
        return None

    def unload(self, entry: ModelEntry) -> RequestError | None:
        """Unloads a model, also one that loads, waits or would be retried. Running streams end."""
        if not self._is_current:
            return BEING_REPLACED
        waited = entry.name in self.capacity.waiting or entry.will_retry
        self.capacity.forget(entry.name)
        if entry.phase is Phase.GONE and not waited:
            return refusal(entry, "is not loaded")
        entry.unloads += 1
        entry.clear_failure()
        if entry.phase in (Phase.STARTING, Phase.UP):
            log.info("unloading model %s", entry.name)
            self._commands.unload(entry)
        self.plan()
        return None

    async def reload(self) -> RequestError | None:
        """Reads the sources again. If they can't be read nothing changes."""
        async with self._reading:
            self._presets_stamp = await asyncio.to_thread(presets_stamp, self._sources)
            try:
                offers = await asyncio.to_thread(read_presets, self._sources, self._settings)
            except PresetError as error:
                return RequestError(ErrorKind.INVALID_REQUEST, str(error))
            if not self._is_current:
                return BEING_REPLACED
            self._take(offers)
        return None

    def plan(self) -> None:
        """Starts the loads and evictions that are possible now."""
        if not self._is_current:
            return
        now = time.monotonic()
        plan = self.capacity.plan(self._holders(now), now)
        for name, why in plan.refused.items():
            self.registry[name].fail(why, now)
            self._publish(self.registry[name])
        for name in plan.load:
            self.capacity.release(name, OPERATOR)
            self._commands.load(self.registry[name])
        for name in plan.evict:
            self._commands.evict(self.registry[name])
        self._publish_waits(plan)

    def changed(self, entry: ModelEntry) -> None:
        """Call it after a report: a model that became idle may make room for another one."""
        self.changes.publish(entry.status)
        if self.capacity.waiting:
            self.plan()

    def _enqueue(self, entry: ModelEntry, lessee: str, until: float) -> None:
        self.capacity.enqueue(entry.name, entry.needs, lessee, until)
        self.plan()

    def _holders(self, now: float) -> list[ResourceHolder]:
        holders = [entry.holder(now) for entry in self.registry if entry.phase is not Phase.GONE]
        orphans = [
            ResourceHolder(name=name, needs=Resources(), leaving=True) for name in self._orphans
        ]
        return holders + orphans

    def _publish_waits(self, plan: CapacityPlan) -> None:
        for entry in self.registry:
            entry.wait(plan.waits.get(entry.name, ""))
            self.changes.publish(entry.status)

    def _load_on_startup(self) -> None:
        for entry in self.registry:
            if not entry.preset.load_on_startup or entry.phase in (Phase.STARTING, Phase.UP):
                continue
            if not self._enqueue_without_eviction(entry):
                log.warning("there is no room to load model %s at the start", entry.name)

    def _retry_failed(self) -> None:
        """Models of the start that failed: a node may have come since, or the hub may be back."""
        if not self._is_current:
            return
        for entry in self.registry:
            if entry.is_retry_due(time.monotonic()) and self._enqueue_without_eviction(entry):
                entry.clear_failure()

    def _enqueue_without_eviction(self, entry: ModelEntry) -> bool:
        """Whether it was queued. A model that can never fit is queued too: the plan refuses it."""
        holders = self._holders(time.monotonic())
        lacks = self.capacity.shortage(entry.needs, holders)
        if not lacks and not self.capacity.has_room(entry.needs, holders):
            return False
        self.capacity.enqueue(entry.name, entry.needs, OPERATOR, float("inf"))
        return True

    def _take(self, offers: list[tuple[Preset, Resources]]) -> None:
        for entry in self.registry.take(offers):
            self.capacity.update_needs(entry.name, entry.needs)
            if entry.phase in (Phase.STARTING, Phase.UP):
                log.info("model %s has new settings", entry.name)
                self._commands.change(entry)
            else:
                entry.clear_failure()  # the old ones failed
        for entry in self.registry:
            if entry.is_removed:
                self._remove(entry)
        self.plan()

    def _remove(self, entry: ModelEntry) -> None:
        self.unload(entry)
        if entry.phase is Phase.GONE:
            self.registry.drop(entry)
            self._states.pop(entry.name, None)
            self.changes.forget(entry.name)

    async def _reload_if_changed(self) -> None:
        """Reloads when the presets file has changed."""
        if await asyncio.to_thread(presets_stamp, self._sources) == self._presets_stamp:
            return
        if (error := await self.reload()) is not None:
            log.error("the models stay as they were: %s", error.message)

    async def _read_serve_if_reachable(self) -> None:
        try:
            await self._read_serve()
            self._reachable = True
        except UNREACHABLE as error:
            if self._reachable:
                log.warning("Serve does not say how the models are: %r", error)
            self._reachable = False

    async def _read_serve(self) -> None:
        """Reads Serve's state. Ignores models that a command was changing meanwhile."""
        asked = {e.name: e.commands for e in self.registry if not self._commands.is_running(e)}
        found, self._is_current = await asyncio.to_thread(read_applications_as, self._replica_id)
        if not self._is_current:
            return
        self.capacity.limits = await asyncio.to_thread(cluster_limits, self._settings)
        nodes = await asyncio.to_thread(node_cpus)
        came_up = []
        for entry in self.registry:
            deployed = found.pop(entry.application, None)
            if asked.get(entry.name) == entry.commands:
                was_up = entry.phase is Phase.UP
                self._observe(entry, deployed)
                if entry.phase is Phase.UP and not was_up:
                    came_up.append(entry)
        self._update_cpu_needs(nodes)
        self._orphans = set(found)
        for name, deployed in found.items():
            if deployed.status is not ApplicationStatus.DELETING:
                log.info("deleting %s, which no model owns now", name)
                self._commands.delete_application(name)
        for entry in came_up:
            await self._weigh(entry)

    async def _weigh(self, entry: ModelEntry) -> None:
        """Nothing was known of a model of the hub before its files were here."""
        settings = entry.preset.settings
        entry.preset = await asyncio.to_thread(_with_what_files_say, entry.preset)
        needs = await asyncio.to_thread(model_needs, settings)
        entry.needs = entry.needs._replace(cpu_bytes=needs.cpu_bytes, gpu_bytes=needs.gpu_bytes)

    def _update_cpu_needs(self, nodes: Sequence[float]) -> None:
        """Updates the CPU needs of models that are not loaded: they depend on the present nodes."""
        for entry in self.registry:
            if entry.phase is Phase.GONE:
                cpus = cpu_needs(entry.preset.settings, lambda: nodes)
                entry.needs = entry.needs._replace(cpus=cpus)
                self.capacity.update_needs(entry.name, entry.needs)

    def _observe(self, entry: ModelEntry, deployed: DeployedApplication | None) -> None:
        now, timeout_s = time.monotonic(), self._settings.load_timeout_s
        entry.observe(deployed, now)
        if entry.is_overdue(now, timeout_s):
            reason = f": {entry.status.message}" if entry.status.message else ""
            entry.fail(f"it was not ready after {timeout_s:g} s{reason}", now)
        self._publish(entry)
        if entry.phase is not Phase.STOPPING:
            return
        if deployed is not None and deployed.status is not ApplicationStatus.DELETING:
            self._commands.delete(entry)

    def _changed(self, entry: ModelEntry) -> None:
        """A command changed the entry: Serve's state is read again soon."""
        self._publish(entry)
        self._wake.set()

    def _publish(self, entry: ModelEntry) -> None:
        state = entry.state
        if self._states.get(entry.name, ModelState.UNLOADED) is not state:
            self._states[entry.name] = state
            level = logging.ERROR if state is ModelState.FAILED else logging.INFO
            log.log(level, "model %s is %s%s", entry.name, state, failure_suffix(entry))
        self.changes.publish(entry.status)
        if entry.is_removed and entry.phase is Phase.GONE:
            self._remove(entry)

    async def _pause(self) -> None:
        settled = all(entry.is_settled for entry in self.registry)
        quiet = settled and not self.capacity.waiting and not self._orphans
        try:
            async with asyncio.timeout(QUIET_POLL_S if quiet else POLL_S):
                await self._wake.wait()
        except TimeoutError:
            return
        finally:
            self._wake.clear()


def read_presets(sources: Sources, capacity: CapacitySettings) -> list[tuple[Preset, Resources]]:
    """All presets, and what each model needs. Blocks; raises PresetError."""
    return [
        (_completed(preset, capacity.load_timeout_s), model_needs(preset.settings))
        for preset in sources.read()
    ]


def _completed(preset: Preset, seconds: float) -> Preset:
    """Adds what the model's files say. A wake has as long as a load."""
    settings = replace(preset.settings, wake_timeout_s=seconds)
    return _with_what_files_say(replace(preset, settings=settings))


def _with_what_files_say(preset: Preset) -> Preset:
    settings = preset.settings
    modalities, weights = input_modalities(settings), weights_form(settings)
    return replace(preset, modalities=modalities, weights=weights)


def presets_stamp(sources: Sources) -> tuple[int, int] | None:
    """Time and size of the presets file, which show that it was written. Blocks."""
    try:
        found = os.stat(sources.presets or "")
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def refusal(entry: ModelEntry, why: str) -> RequestError:
    return RequestError(ErrorKind.INVALID_REQUEST, f"The model {entry.name!r} {why}", "model")


def failure_suffix(entry: ModelEntry) -> str:
    failure = entry.failure or entry.replicas.failure
    return f": {failure}" if failure else ""
