"""Other readers, who keep a model busy."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from tests.e2e.server import Server

N_READERS = 12
LONG = {"prompt": "Once upon a time", "max_tokens": 1500, "ignore_eos": True, "stream": True}


@contextmanager
def crowd(server: Server, model: str) -> Iterator[None]:
    """Long answers of a model go to others meanwhile, so that each stream of it is slow, on a fast
    machine too."""
    is_over = Event()

    def read() -> None:
        while not is_over.is_set():
            with server.http.stream("POST", "/v1/completions", json=LONG | {"model": model}) as one:
                for _ in one.iter_bytes():
                    if is_over.is_set():
                        return

    threads = [Thread(target=read, daemon=True) for _ in range(N_READERS)]
    for thread in threads:
        thread.start()
    try:
        server.eventually(lambda: server.stats()["active_requests"] >= N_READERS)
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
