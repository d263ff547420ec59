"""Knows the models and chooses replicas; carries no tokens.

Every model is a Serve application of its own, deployed from here, so that one which is not
loaded holds nothing. The router can die: requests flow without it, and its successor learns what
runs from Serve and from the replicas.
"""

import asyncio
import logging
import re
import time
from collections.abc import Sequence

import ray
from ray import serve
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle
from ray.serve.schema import ApplicationStatus

from deployments.model.deployment import model_application
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings, is_model_application
from deployments.router.policy import CostWeights
from deployments.router.registry import ModelEntry
from deployments.wire import ModelStatus, ReplicaLoad

log = logging.getLogger("ray.serve")

EXCEPTION = re.compile(r"^[\w.]+(?:Error|Exception): ")
POLL_S = 0.5
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
        self._work = [asyncio.create_task(self._serve_all())]

    async def choose(self, model: str, hashes: tuple[bytes, ...]) -> str | None:
        """The replica for a prompt with these page hashes; None when any will do."""
        entry = self._models.get(model)
        return None if entry is None else entry.choose(hashes, self._weights)

    async def models(self) -> list[ModelStatus]:
        """All models, the default one first."""
        entries = sorted(self._models.values(), key=lambda e: e.settings.name != self._default)
        return [entry.status for entry in entries]

    async def _serve_all(self) -> None:
        # First, because what they hold may be what the models of now need.
        await asyncio.to_thread(_unload_others, list(self._models.values()))
        await asyncio.gather(*(self._serve(entry) for entry in self._models.values()))

    async def _serve(self, entry: ModelEntry) -> None:
        """Loads a model if need be, then watches its replicas."""
        try:
            await self._load(entry)
        except Exception as error:
            log.exception("model %s failed to load", entry.settings.name)
            entry.failed(str(error))
            return
        handle = _model_handle(entry.settings)
        while True:
            await self._poll(entry, handle)
            await asyncio.sleep(POLL_S)

    async def _load(self, entry: ModelEntry) -> None:
        settings = entry.settings
        if not await _runs_already(settings):
            started = time.monotonic()
            log.info("loading model %s from %s", settings.name, settings.path)
            await asyncio.to_thread(_deploy, settings)
            log.info("model %s is ready after %.1f s", settings.name, time.monotonic() - started)
        entry.ready()

    async def _poll(self, entry: ModelEntry, handle: DeploymentHandle) -> None:
        try:
            answers = await handle.broadcast("load").results_async(
                timeout_s=CALL_TIMEOUT_S, return_exceptions=True
            )
        except (ray.exceptions.RayError, RayServeException, TimeoutError) as error:
            log.warning("no load from model %s: %r", entry.settings.name, error)
            answers = []
        entry.observe([answer for answer in answers if isinstance(answer, ReplicaLoad)])


async def _runs_already(settings: ModelSettings) -> bool:
    """Whether an earlier router deployed this model just so."""
    status = await asyncio.to_thread(serve.status)
    application = status.applications.get(settings.application)
    if application is None or application.status is not ApplicationStatus.RUNNING:
        return False
    async with asyncio.timeout(CALL_TIMEOUT_S):
        running: ModelSettings = await _model_handle(settings).settings.remote()
    return running == settings


def _unload_others(entries: Sequence[ModelEntry]) -> None:
    """Deletes the models of earlier settings: applying a configuration leaves them running."""
    wanted = {entry.settings.application for entry in entries}
    for name, application in serve.status().applications.items():
        ours = is_model_application(name) and MODEL_DEPLOYMENT in application.deployments
        if ours and name not in wanted:
            serve.delete(name)


def _model_handle(settings: ModelSettings) -> DeploymentHandle:
    return serve.get_deployment_handle(MODEL_DEPLOYMENT, settings.application)


def _deploy(settings: ModelSettings) -> None:
    """Blocks until the model answers. Raises RuntimeError with the constructor's own words."""
    application = settings.application
    try:
        serve.run(model_application(settings), name=application, route_prefix=None)
    except RuntimeError as error:
        deployments = serve.status().applications[application].deployments
        failed = deployments.get(MODEL_DEPLOYMENT)
        message = str(error) if failed is None else failed.message
        serve.delete(application)
        raise RuntimeError(_reason(message)) from error


def _reason(message: str) -> str:
    """What the last exception of a traceback says."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    raised = [at for at, line in enumerate(lines) if EXCEPTION.match(line)]
    if not raised:
        return lines[-1] if lines else "the model did not start"
    return EXCEPTION.sub("", " ".join(lines[raised[-1] :]))
