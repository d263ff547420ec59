"""An ASGI application that listens in a thread of the test's process."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import uvicorn
from starlette.types import ASGIApp

START_S = 30


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready.set()


@contextmanager
def listening(app: ASGIApp, port: int = 0) -> Iterator[str]:
    """Its URL while it listens; on a free port where none is named."""
    server = _Server(uvicorn.Config(app, log_level="error"))
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        thread = Thread(target=server.run, args=([listener],))
        thread.start()
        assert server.ready.wait(START_S)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
