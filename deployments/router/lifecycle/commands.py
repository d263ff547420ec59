"""Commands to Serve and to replicas: for each model, one after the other.

Nothing here decides anything; no command keeps the event loop waiting.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from deployments.model.settings import ModelSettings
from deployments.router.lifecycle.applications import (
    UNREACHABLE,
    LoadError,
    delete,
    deploy,
    model_handle,
    redeploy,
)
from deployments.router.lifecycle.model_entry import ModelEntry, Phase
from deployments.serving.detached_tasks import create_detached_task

log = logging.getLogger("ray.serve")

CALL_TIMEOUT_S = 5.0


class Commands:
    """Calls `changed` with each entry that a command has changed. Belongs to one event loop."""

    def __init__(self, changed: Callable[[ModelEntry], None]) -> None:
        self._changed = changed
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # in use
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def check(self) -> None:
        """Raises the unexpected error of a command, if any."""
        if self._failure is not None:
            raise self._failure

    def is_running(self, entry: ModelEntry) -> bool:
        return self._lock(entry.application).locked()

    def load(self, entry: ModelEntry) -> None:
        entry.start(time.monotonic())
        log.info("loading model %s from %s", entry.name, entry.preset.settings.path)
        self._changed(entry)
        self._start(entry, self._load(entry))

    def change(self, entry: ModelEntry) -> None:
        """Deploys the settings again: Serve touches only what they change."""
        self._start(entry, self._change(entry))

    def unload(self, entry: ModelEntry) -> None:
        """Streams end within the model's stop timeout."""
        entry.stop(time.monotonic())
        self._changed(entry)
        self.delete(entry)

    def evict(self, entry: ModelEntry) -> None:
        """Unloads the model, unless a replica has work of which the router does not know yet."""
        entry.stop(time.monotonic())
        self._changed(entry)
        self._start(entry, self._evict(entry, entry.unloads, entry.preset.settings))

    def delete(self, entry: ModelEntry) -> None:
        self._start(entry, self._delete(entry))

    def delete_application(self, application: str) -> None:
        """Deletes an application that no model owns."""
        self._spawn(self._delete_application(application))

    async def _load(self, entry: ModelEntry) -> None:
        async with self._command(entry):
            if entry.phase is not Phase.STARTING:
                return  # unloaded before it began
            try:
                await asyncio.to_thread(deploy, entry.preset.settings)
            except LoadError as error:
                self._fail(entry, str(error))

    async def _change(self, entry: ModelEntry) -> None:
        async with self._command(entry):
            if entry.phase not in (Phase.STARTING, Phase.UP):
                return
            try:
                await asyncio.to_thread(redeploy, entry.preset.settings)
            except LoadError as error:
                log.error("model %s stays as it was: %s", entry.name, error)

    async def _evict(self, entry: ModelEntry, unloads: int, settings: ModelSettings) -> None:
        """Respects an unload or new settings by an operator while replicas are asked."""
        async with self._command(entry):
            if await self._is_busy(entry) and entry.unloads == unloads:
                entry.resume(time.monotonic())
                self._changed(entry)
                if entry.preset.settings != settings:
                    self.change(entry)
                return
            log.info("unloading model %s to make room", entry.name)
            entry.evictions += 1
            await self._delete_now(entry.application)

    async def _delete(self, entry: ModelEntry) -> None:
        async with self._command(entry):
            await self._delete_now(entry.application)

    async def _delete_application(self, application: str) -> None:
        async with self._lock(application):
            await self._delete_now(application)

    async def _delete_now(self, application: str) -> None:
        try:
            await asyncio.to_thread(delete, application)
        except UNREACHABLE as error:  # it is still there then, and deleted later
            log.warning("%s could not be deleted: %r", application, error)

    async def _is_busy(self, entry: ModelEntry) -> bool:
        if not entry.status.replicas:
            return False
        try:
            async with asyncio.timeout(CALL_TIMEOUT_S):
                handle = await asyncio.to_thread(model_handle, entry.preset.settings)
                answers: list[object] = await handle.broadcast("busy").results_async(
                    timeout_s=CALL_TIMEOUT_S, return_exceptions=True
                )
        except UNREACHABLE as error:
            log.warning("model %s does not say whether it is busy: %r", entry.name, error)
            return True
        return any(isinstance(answer, int) and answer > 0 for answer in answers)

    def _fail(self, entry: ModelEntry, message: str) -> None:
        if entry.phase is Phase.STARTING:
            entry.fail(message, time.monotonic())
            self._changed(entry)

    @asynccontextmanager
    async def _command(self, entry: ModelEntry) -> AsyncIterator[None]:
        async with self._lock(entry.application):
            entry.commands += 1
            yield

    def _start(self, entry: ModelEntry, command: Coroutine[None, None, None]) -> None:
        entry.commands += 1  # counts also before it begins: what Serve reports meanwhile is stale
        self._spawn(command)

    def _lock(self, application: str) -> asyncio.Lock:
        return self._locks.setdefault(application, asyncio.Lock())

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = create_detached_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
