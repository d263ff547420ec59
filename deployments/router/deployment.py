"""Knows the models and chooses replicas; carries no tokens.

Every model is a Serve application of its own, deployed from here, so that one which is not
loaded holds nothing. The router can die: requests flow without it, and its successor learns what
runs from Serve and from the replicas.
"""

import asyncio
import logging
import time

from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from deployments.model.settings import ModelSettings
from deployments.router.applications import (
    LoadError,
    deploy,
    is_up,
    model_handle,
    progress,
    unload_others,
)
from deployments.router.policy import CostWeights
from deployments.router.registry import ModelEntry
from deployments.wire import ModelStatus, ReplicaLoad

log = logging.getLogger("ray.serve")

UNREACHABLE = (RayError, RayServeException, TimeoutError)
POLL_S = 0.5
PROGRESS_S = 2.0
CALL_TIMEOUT_S = 5.0


@serve.deployment(
    name="Router",
    max_ongoing_requests=10_000,
    health_check_period_s=2,
    ray_actor_options={"num_cpus": 0},
    logging_config={"enable_access_log": False},  # polls and choices: noise beside the ingress's
)
class Router:
    # Async, which Serve awaits, because the background work needs a running loop.
    async def __init__(self, models: list[ModelSettings]) -> None:  # type: ignore[misc]
        self._models = {settings.name: ModelEntry(settings) for settings in models}
        self._default = models[0].name
        self._weights = CostWeights()
        self._work = asyncio.create_task(self._serve_all())

    async def choose(self, model: str, hashes: tuple[bytes, ...]) -> str | None:
        """The replica for a prompt with these page hashes; None when any will do."""
        entry = self._models.get(model)
        return None if entry is None else entry.choose(hashes, self._weights)

    async def models(self) -> list[ModelStatus]:
        """All models, the default one first."""
        entries = sorted(self._models.values(), key=lambda e: e.settings.name != self._default)
        return [entry.status for entry in entries]

    def check_health(self) -> None:
        """Raises what ended the background work, if it ended."""
        if self._work.done() and (error := self._work.exception()):
            raise error

    async def _serve_all(self) -> None:
        # First, because what they hold may be what the models of now need.
        wanted = [entry.settings.application for entry in self._models.values()]
        await asyncio.to_thread(unload_others, wanted)
        await asyncio.gather(*(self._serve(entry) for entry in self._models.values()))

    async def _serve(self, entry: ModelEntry) -> None:
        """Loads a model if need be, then watches its replicas."""
        while True:
            try:
                if not await self._runs_already(entry.settings):
                    await self._load(entry)
                break
            except LoadError as error:
                log.error("model %s can't be loaded: %s", entry.settings.name, error)
                entry.failed(str(error))
                return
            except UNREACHABLE as error:
                log.warning("model %s: %r; trying again", entry.settings.name, error)
                await asyncio.sleep(POLL_S)
        entry.ready()
        await self._watch(entry)

    async def _runs_already(self, settings: ModelSettings) -> bool:
        """Whether an earlier router deployed this model just so."""
        if not await asyncio.to_thread(is_up, settings):
            return False
        handle = await asyncio.to_thread(model_handle, settings)
        async with asyncio.timeout(CALL_TIMEOUT_S):
            running: ModelSettings = await handle.settings.remote()
        return running == settings

    async def _load(self, entry: ModelEntry) -> None:
        settings = entry.settings
        started = time.monotonic()
        log.info("loading model %s from %s", settings.name, settings.path)
        loading = asyncio.create_task(asyncio.to_thread(deploy, settings))
        while not (await asyncio.wait({loading}, timeout=PROGRESS_S))[0]:
            entry.loading(await asyncio.to_thread(progress, settings))
        loading.result()
        log.info("model %s is ready after %.1f s", settings.name, time.monotonic() - started)

    async def _watch(self, entry: ModelEntry) -> None:
        handle = await asyncio.to_thread(model_handle, entry.settings)
        while True:
            entry.observe(await self._loads(entry, handle))
            await asyncio.sleep(POLL_S)

    async def _loads(self, entry: ModelEntry, handle: DeploymentHandle) -> list[ReplicaLoad]:
        try:
            answers = await handle.broadcast("load").results_async(
                timeout_s=CALL_TIMEOUT_S, return_exceptions=True
            )
        except UNREACHABLE as error:
            log.warning("no load from model %s: %r", entry.settings.name, error)
            return []
        return [answer for answer in answers if isinstance(answer, ReplicaLoad)]
