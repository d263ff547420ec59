"""The stream of a sequence whose client leaves before its first event."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

from ray.serve.exceptions import RayServeException, RequestCancelledError
from ray.serve.handle import DeploymentHandle

from deployments.contract.events import TokenEvent
from deployments.ingress.fleet.heartbeats import Heartbeats
from deployments.ingress.fleet.serve_handles import ServeHandles
from deployments.ingress.fleet.single_stream import SingleStream


class RayStream:
    """A stream like Serve's: who waits for an item hears of a cancellation by an error of Ray's."""

    def __aiter__(self) -> AsyncIterator[TokenEvent]:
        return self

    async def __anext__(self) -> TokenEvent:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RequestCancelledError("r1") from None
        raise StopAsyncIteration

    def cancel(self) -> None: ...


def find_nothing(application: str, deployment: str) -> DeploymentHandle:
    raise RayServeException(f"no {deployment} in {application}")


async def test_nothing_is_logged_of_an_event_that_nobody_waits_for_any_more() -> None:
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: logged.append(context))
    handles = ServeHandles(find_nothing)
    stream = SingleStream(handles, Heartbeats(handles), "tiny", "r1", RayStream())
    assert not await stream.is_readable(0)
    stream.leave(is_complete=False)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    del stream
    gc.collect()
    assert not logged
