"""Ends a server that is told to stop: streams first, then everything. A second signal ends at once,
and so does time: a Serve that never ends keeps no server running.

SIGINT and SIGTERM are the same.
"""

import asyncio
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

import psutil
from ray import serve

GRACE_S = 10.0  # beyond the seconds that ingresses leave to their streams
SHUTDOWN_S = 25.0  # for Serve and Ray to end, after the streams
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Ray sets handlers of its own whenever it starts something: `listen` again after that."""

    def __init__(self) -> None:
        self.told = threading.Event()
        self._is_serving = False

    def listen(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self._hear)

    def serving(self) -> None:
        """Gives streams time from now on."""
        self._is_serving = True

    def _hear(self, number: int, frame: FrameType | None) -> None:
        if self.told.is_set():
            end_at_once(128 + number)
        self.told.set()
        if not self._is_serving:
            raise KeyboardInterrupt


def end_at_once(status: int) -> None:
    end_children()
    sys.stderr.flush()
    os._exit(status)


def end_children() -> None:
    """Kills what this process has started, and what these have: Ray's node, if it has one of its
    own. Ray would leave the agents of a killed raylet running.
    """
    children = psutil.Process().children(recursive=True)
    for child in children:
        with suppress(psutil.NoSuchProcess):
            child.kill()
    psutil.wait_procs(children, timeout=GRACE_S)


def stop(ingresses: Sequence[str], patience_s: float) -> None:
    """`ingresses`: names of applications with HTTP. `patience_s`: the most their streams have."""
    limit_s = patience_s + GRACE_S + SHUTDOWN_S
    late = threading.Timer(limit_s, _end_what_is_left, (limit_s,))
    late.daemon = True  # it also covers what Ray does when the interpreter ends
    late.start()
    # One event loop for all: in throughput mode Serve's handles belong to it.
    asyncio.run(_stop(ingresses, patience_s))


def _end_what_is_left(after_s: float) -> None:
    said = f"Serve has not ended in {after_s:.0f} s: what was started here is killed."
    print(said, file=sys.stderr, flush=True)
    faulthandler.dump_traceback()  # of all threads: it says what was waited for
    end_at_once(1)


async def _stop(ingresses: Sequence[str], patience_s: float) -> None:
    known = serve.status().applications
    running = [name for name in ingresses if name in known and known[name].status == "RUNNING"]
    await asyncio.gather(*(_end_answers(name, patience_s + GRACE_S) for name in running))
    await serve.shutdown_async()


async def _end_answers(name: str, timeout_s: float) -> None:
    """However it fails, the server stops."""
    try:
        async with asyncio.timeout(timeout_s):
            told = serve.get_app_handle(name).broadcast("end_answers")
            await told.results_async(timeout_s=timeout_s, return_exceptions=True)
    except Exception as failure:
        print(f"{name} did not say that its answers have ended: {failure!r}", file=sys.stderr)
