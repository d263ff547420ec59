"""The router: knows the models, loads and unloads them, chooses replicas. It carries no tokens.

Every model is a Serve application of its own, deployed from here, so that one which is not
loaded holds nothing. The router can die: requests flow without it, and its successor learns what
runs from Serve and from the replicas.
"""

import asyncio
import time
from collections.abc import Sequence, Set
from dataclasses import replace

from ray import serve

from deployments.contract.errors import ErrorKind, RequestError
from deployments.contract.model_status import LoadProgress, ModelState, ModelStatus
from deployments.contract.replica_status import FleetStatus, ReplicaReport
from deployments.contract.routing import RoutingDecision, RoutingQuery
from deployments.model.settings import application_name
from deployments.router.downloads.downloads import OFF, SOURCE, Downloads
from deployments.router.lifecycle.adapter_commands import AdapterCommands
from deployments.router.lifecycle.applications import deployed_at
from deployments.router.lifecycle.cluster_memory import ClusterMemory
from deployments.router.lifecycle.lifecycle import Lifecycle
from deployments.router.lifecycle.model_entry import ModelEntry
from deployments.router.metrics import router_families
from deployments.router.presets.sources import Sources
from deployments.router.settings import (
    AdapterSettings,
    CapacitySettings,
    DownloadSettings,
    RoutingSettings,
)
from deployments.serving.draining import DRAIN_CHECK_S, SHORT_DRAINING
from deployments.telemetry.logs import join_serve_log
from deployments.telemetry.metric_families import MetricFamily
from deployments.telemetry.ray_exporter import export_to_ray

LEASE_S = 5.0  # until the next call of a request that waits for a model
USE_LEASE_S = 2.0  # until the request reaches the model
MAX_WAIT_S = 60.0
FINAL_STATES = {ModelState.READY, ModelState.SLEEPING, ModelState.FAILED}


@serve.deployment(
    name="Router",
    max_ongoing_requests=10_000,
    health_check_period_s=2,
    graceful_shutdown_wait_loop_s=DRAIN_CHECK_S,
    ray_actor_options={"num_cpus": 0, "runtime_env": SHORT_DRAINING},
)
class Router:
    # Async, which Serve awaits, because the background work needs a running loop.
    async def __init__(  # type: ignore[misc]
        self,
        sources: Sources,
        capacity: CapacitySettings,
        routing: RoutingSettings,
        downloads: DownloadSettings | None = None,
        adapters: AdapterSettings | None = None,
    ) -> None:
        self._replica_id: str = serve.get_replica_context().replica_id.unique_id
        join_serve_log()
        self._lifecycle = Lifecycle(self._replica_id, sources, capacity, routing)
        self._downloads: Downloads | None = None
        if downloads is not None:
            feed, reload = self._lifecycle.changes, self._lifecycle.reload
            self._downloads = Downloads(downloads, feed, reload)
            await self._downloads.clean()
        await self._lifecycle.start()
        registry, changed = self._lifecycle.registry, self._lifecycle.changed
        self._adapters = AdapterCommands(adapters, registry, changed, ClusterMemory("adapters"))
        await self._adapters.restore()
        self._started_at = await asyncio.to_thread(deployed_at, self._replica_id)
        self._work = asyncio.create_task(self._lifecycle.watch())
        self._mirror = asyncio.create_task(export_to_ray(self.samples))

    async def choose(self, queries: Sequence[RoutingQuery]) -> list[RoutingDecision]:
        """A replica for each; the request counts there at once."""
        now = time.monotonic()
        return [self._choose(query, now) for query in queries]

    async def ensure_loaded(
        self, model: str | None, lessee: str, wait_s: float, unloads: int | None = None
    ) -> ModelStatus | RequestError:
        """Has a model loaded, and waits for `wait_s` until it is up or has failed.

        Until a few seconds after the call `lessee` holds a lease on the model: it keeps its place
        in the queue, and is not evicted. A cancelled call ends the lease. A request that began when
        operators had unloaded the model `unloads` times does not load it again after the next
        unload.
        """
        entry = self._lifecycle.registry.find_for_request(model)
        if entry is None:
            return self._missing(model)
        until = time.monotonic() + min(wait_s, MAX_WAIT_S)
        self._lifecycle.retry(entry)
        try:
            return await self._wait(entry, lessee, until, unloads)
        except asyncio.CancelledError:
            self._lifecycle.capacity.release(entry.name, lessee)
            raise

    async def models(self) -> list[ModelStatus]:
        """All models, the default one first, and those that are downloaded now last."""
        listed = [entry.status for entry in self._lifecycle.registry]
        return listed + self._unlisted_downloads({status.name for status in listed})

    async def fleet(self) -> FleetStatus:
        models = [(entry.status, entry.replica_statuses) for entry in self._lifecycle.registry]
        unlisted = self._unlisted_downloads({status.name for status, _ in models})
        models += [(status, ()) for status in unlisted]
        return FleetStatus(
            started_at=self._started_at,
            can_download=self._downloads is not None,
            models=tuple(models),
        )

    async def changes(self, version: int, wait_s: float) -> tuple[int, list[ModelStatus]]:
        """The models and their version, once it is not `version`, or after `wait_s`."""
        await self._lifecycle.changes.wait(version, min(wait_s, MAX_WAIT_S))
        return self._lifecycle.changes.version, await self.models()

    async def load(self, model: str) -> RequestError | None:
        """Starts the load. Returns the refusal, if any."""
        entry = self._lifecycle.registry.find(model)
        return self._refuse_name(model) if entry is None else self._lifecycle.load(entry)

    async def unload(self, model: str) -> RequestError | None:
        """Starts the unload; running streams end. Returns the refusal, if any."""
        entry = self._lifecycle.registry.find(model)
        return self._refuse_name(model) if entry is None else self._lifecycle.unload(entry)

    async def load_adapter(
        self, name: str, path: str, model: str | None, replaces: bool
    ) -> RequestError | None:
        """Loads an adapter as `AdapterCommands.load` does. Returns the refusal, if any."""
        return await self._adapters.load(name, path, model, replaces)

    async def unload_adapter(self, name: str) -> RequestError | None:
        return await self._adapters.unload(name)

    async def scale_adapters(
        self, model: str, scales: Sequence[tuple[int, float]]
    ) -> RequestError | None:
        """Sets the default scales of a model's adapters. Returns the refusal, if any."""
        entry = self._lifecycle.registry.find_for_request(model)
        return self._missing(model) if entry is None else await self._adapters.scale(entry, scales)

    async def reload(self) -> RequestError | None:
        """Reads the sources again. If they can't be read nothing changes, and it returns why."""
        return await self._lifecycle.reload()

    async def download(self, model: str, revision: str | None) -> RequestError | None:
        """Starts the download of a model of the hub. Returns the refusal, if any."""
        if self._downloads is None:
            return OFF
        registry = self._lifecycle.registry
        named = registry.find(model) or registry.find_adapter(model)
        if named or registry.deployed_as(application_name(model)):
            message = f"The model {model!r} exists already"
            return RequestError(ErrorKind.INVALID_REQUEST, message, "model")
        return self._downloads.start(model, revision)

    async def delete(self, model: str) -> RequestError | None:
        """Deletes a downloaded model, or ends its download. Returns the refusal, if any."""
        if self._downloads is None:
            return OFF
        entry = self._lifecycle.registry.get(model)
        if entry is None:
            return None if self._downloads.cancel(model) else unknown_model(model)
        if entry.preset.source != SOURCE:
            message = f"The model {model!r} is not removable: it was not downloaded here"
            return RequestError(ErrorKind.INVALID_REQUEST, message, "model")
        if not entry.is_removed:
            if refusal := await self._lifecycle.reload():
                return refusal  # nothing could be taken from the list
            await self._downloads.delete(entry.preset.settings.path)
        return await self._lifecycle.reload()

    async def report(self, report: ReplicaReport) -> bool:
        """Whether the replica has to send a snapshot next."""
        entry = self._lifecycle.registry.deployed_as(report.application)
        if entry is None:
            return False
        resync = entry.report(report)
        self._lifecycle.changed(entry)
        return resync

    async def progress(self, application: str, progress: LoadProgress) -> None:
        entry = self._lifecycle.registry.deployed_as(application)
        if entry is not None:
            entry.progress(progress)
            self._lifecycle.changed(entry)

    async def samples(self) -> tuple[dict[str, str], list[MetricFamily]]:
        """Its metrics, and the label that distinguishes it from its predecessor."""
        families = router_families(self._lifecycle.registry, len(self._lifecycle.capacity.waiting))
        return {"replica": self._replica_id}, families

    def check_health(self) -> None:
        """Raises what ended the background work, if it ended."""
        self._lifecycle.check()
        if self._work.done() and (error := self._work.exception()):
            raise error

    def _unlisted_downloads(self, listed: Set[str]) -> list[ModelStatus]:
        found = [] if self._downloads is None else self._downloads.statuses
        return [status for status in found if status.name not in listed]

    def _missing(self, model: str | None) -> RequestError:
        download = None if self._downloads is None or not model else self._downloads.get(model)
        if download is None:
            return unknown_model(model)
        why = download.message or "it is being downloaded"
        message = f"The model {model!r} is not here: {why}"
        return RequestError(ErrorKind.UNAVAILABLE, message, "model")

    def _refuse_name(self, model: str) -> RequestError:
        """Returns the refusal of a name that no model has.

        Adapters are with their model, and are neither loaded nor unloaded like one.
        """
        found = self._lifecycle.registry.find_adapter(model)
        if found is None:
            return self._missing(model)
        message = f"{model!r} is an adapter of the model {found[0].name!r}: name that"
        return RequestError(ErrorKind.INVALID_REQUEST, message, "model")

    def _choose(self, query: RoutingQuery, now: float) -> RoutingDecision:
        entry = self._lifecycle.registry.get(query.model)
        if entry is None:
            return RoutingDecision(None, False)
        choice = entry.choose(*query[1:-1], now)
        table = entry.adapters.table
        return choice if query.adapters == table.version else replace(choice, adapters=table)

    async def _wait(
        self, entry: ModelEntry, lessee: str, until: float, unloads: int | None
    ) -> ModelStatus | RequestError:
        unloads = entry.unloads if unloads is None else unloads
        while True:
            if entry.is_removed or entry.unloads > unloads:
                message = f"The model {entry.name!r} was unloaded while a request needed it"
                return RequestError(ErrorKind.UNAVAILABLE, message)
            version = self._lifecycle.changes.version
            if refused := self._lifecycle.ensure_loaded(entry, lessee, until + LEASE_S):
                return refused
            left = until - time.monotonic()
            if left <= 0 or entry.state in FINAL_STATES:
                self._keep(entry, lessee)
                return entry.status
            await self._lifecycle.changes.wait(version, left)

    def _keep(self, entry: ModelEntry, lessee: str) -> None:
        """Extends the lease for the next call, or for the request that follows."""
        lasts = {
            ModelState.READY: USE_LEASE_S,
            ModelState.SLEEPING: USE_LEASE_S,
            ModelState.FAILED: 0.0,
        }
        until = time.monotonic() + lasts.get(entry.state, LEASE_S)
        self._lifecycle.capacity.lease(entry.name, lessee, until)


def unknown_model(model: str | None) -> RequestError:
    message = f"The model {model!r} does not exist" if model else "There is no model"
    return RequestError(ErrorKind.MODEL_NOT_FOUND, message, "model")
