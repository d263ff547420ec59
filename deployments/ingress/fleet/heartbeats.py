"""Tells replicas that this ingress is there while they run sequences with streams of their own."""

import asyncio

from deployments.channel_protocol import HEARTBEAT_S
from deployments.detached_tasks import create_detached_task
from deployments.ingress.fleet.serve_handles import ServeHandles
from deployments.model.settings import MODEL_DEPLOYMENT, application_name


class Heartbeats:
    """All that a model runs for this ingress are told of together, to each of its replicas: nobody
    knows which of them runs what. Belongs to one event loop.
    """

    def __init__(self, handles: ServeHandles) -> None:
        self._handles = handles
        self._lasting: dict[str, dict[str, None]] = {}  # request ids by model
        self._beating: set[asyncio.Task[None]] = set()

    def begin(self, model: str, request_id: str) -> None:
        """Pairs with `end`."""
        if model not in self._lasting:
            self._lasting[model] = {}
            task = create_detached_task(self._beat(model))
            self._beating.add(task)
            task.add_done_callback(self._beating.discard)
        self._lasting[model][request_id] = None

    def end(self, model: str, request_id: str) -> None:
        self._lasting.get(model, {}).pop(request_id, None)

    async def _beat(self, model: str) -> None:
        try:
            await asyncio.sleep(HEARTBEAT_S)
            while lasting := self._lasting[model]:
                hears = self._handles.broadcast(
                    application_name(model), MODEL_DEPLOYMENT, "hear_of", *lasting
                )
                await asyncio.gather(hears, asyncio.sleep(HEARTBEAT_S))
        finally:
            del self._lasting[model]
