"""`/ui/api` in a process of its own, on a socket that its parent listens at."""

import asyncio
import socket
import sys

import uvicorn

from deployments.store.limits import StoreLimits
from deployments.web.api.opening import StoreOpener
from deployments.web.api.routes import api_routes
from tests.web.api.serving import MANY, OPEN, application


async def main(url: str, listener: int) -> None:
    opener = StoreOpener(url, StoreLimits(max_messages=1_000_000))
    opener.begin()
    app = application(api_routes(opener, OPEN, limits=MANY))
    config = uvicorn.Config(app, log_level="error", lifespan="off")
    await uvicorn.Server(config).serve([socket.socket(fileno=listener)])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
