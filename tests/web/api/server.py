"""`/ui/api` in a process of its own, on a socket that its parent listens at."""

import asyncio
import socket

import uvicorn

from deployments.store.limits import StoreLimits
from deployments.web.api.opening import StoreOpener
from deployments.web.api.routes import api_routes
from tests.web.api.serving import MANY, OPEN, application


def serve(url: str, listener: socket.socket) -> None:
    asyncio.run(_serve(url, listener))


async def _serve(url: str, listener: socket.socket) -> None:
    opener = StoreOpener(url, StoreLimits(max_messages=1_000_000))
    opener.begin()
    app = application(api_routes(opener, OPEN, limits=MANY))
    config = uvicorn.Config(app, log_level="error", lifespan="off")
    await uvicorn.Server(config).serve([listener])
