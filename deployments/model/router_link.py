"""A replica's calls to the router, which may be missing. All have a timeout, and none piles up."""

import asyncio
import time

from ray import serve
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponse

from deployments.contract.model_status import LoadProgress
from deployments.contract.replica_status import ReplicaReport

CALL_TIMEOUT_S = 2.0
LOOKUP_RETRY_S = 5.0  # after there was no router


class RouterLink:
    """Belongs to one event loop. Its methods raise whatever Ray does, and TimeoutError."""

    def __init__(self) -> None:
        self._handle: DeploymentHandle | None = None
        self._lookup: asyncio.Task[None] | None = None
        self._next_lookup = 0.0

    async def report(self, report: ReplicaReport) -> bool:
        """Whether the router wants a snapshot next."""
        router = await self._router()
        return bool(await call_result(router.report.remote(report)))

    async def progress(self, application: str, progress: LoadProgress) -> None:
        router = await self._router()
        await call_result(router.progress.remote(application, progress))

    async def _router(self) -> DeploymentHandle:
        if self._handle is None:
            if self._lookup is None:
                self._lookup = asyncio.get_running_loop().create_task(self._look_up())
            await asyncio.shield(self._lookup)
            assert self._handle is not None
        return self._handle

    async def _look_up(self) -> None:
        """One at a time: without Serve's controller each would hold a thread."""
        try:
            if time.monotonic() < self._next_lookup:
                raise RayServeException("there is no router")
            self._next_lookup = time.monotonic() + LOOKUP_RETRY_S
            self._handle = await asyncio.to_thread(find_router)
        finally:
            self._lookup = None


async def call_result(response: DeploymentResponse) -> object:
    """The result of a call, which is cancelled after a timeout or when the caller leaves."""
    is_over = False
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            result: object = await response
            is_over = True
            return result
    finally:
        if not is_over:  # else calls to a router that is down wait for the next one, all of them
            response.cancel()


def find_router() -> DeploymentHandle:
    """Blocks on Serve's controller. Raises RayServeException where there is no router."""
    try:
        return serve.get_deployment_handle("Router", "router")
    except KeyError as error:
        raise RayServeException("there is no router") from error
