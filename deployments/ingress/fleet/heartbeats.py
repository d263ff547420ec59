"""Tells replicas that this ingress is there while they run sequences with streams of their own."""

import asyncio

from deployments.contract.channel import HEARTBEAT_S
from deployments.ingress.fleet.serve_handles import ServeHandles
from deployments.model.settings import MODEL_DEPLOYMENT, application_name
from deployments.serving.detached_tasks import create_detached_task


class Heartbeats:
    """One call tells a replica of all the model's requests from here. It goes to every replica of
    the model, because an ingress does not know which of them runs what. Belongs to one event loop.
    """

    def __init__(self, handles: ServeHandles) -> None:
        self._handles = handles
        self._running: dict[str, dict[str, None]] = {}  # request ids by model
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, model: str, request_id: str) -> None:
        """Pairs with `end`."""
        if model not in self._running:
            self._running[model] = {}
            task = create_detached_task(self._send_heartbeats(model))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._running[model][request_id] = None

    def end(self, model: str, request_id: str) -> None:
        self._running.get(model, {}).pop(request_id, None)

    async def _send_heartbeats(self, model: str) -> None:
        try:
            await asyncio.sleep(HEARTBEAT_S)
            while running := self._running[model]:
                calls = self._handles.broadcast(
                    application_name(model), MODEL_DEPLOYMENT, "heartbeat", *running
                )
                await asyncio.gather(calls, asyncio.sleep(HEARTBEAT_S))
        finally:
            del self._running[model]
