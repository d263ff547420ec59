"""One log a replica: Serve's own, in its format, with the id of the request that a line is about.

Serve's `logging_config` sets the format for all, models too, which are deployed while it runs. All
sequences that an HTTP request has in a replica have one line there.
"""

import asyncio
import logging
from collections import Counter
from dataclasses import dataclass, field

from ray.serve._private.logging_utils import ServeContextFilter
from ray.serve.context import (
    _get_internal_replica_context,
    _get_serve_request_context,
    _RequestContext,
    _serve_request_context,
)

from deployments.contract.events import FinishReason, TokenEvent

SERVE_LOG = logging.getLogger("ray.serve")
OWN_LOG = logging.getLogger("deployments")
PAUSE_S = 1.0  # without a sequence, after which no further one is waited for


def join_serve_log() -> None:
    """Our loggers write to Serve's, which adds replica, route and request id.

    Without Serve's access log: it names each ingress and none of its endpoints, and most calls of
    others ask for a state. Ingresses have a line of their own for each request.
    """
    OWN_LOG.parent = SERVE_LOG
    SERVE_LOG.addFilter(_is_no_access)
    for handler in SERVE_LOG.handlers:  # Serve leaves it out where it writes no access log
        handler.addFilter(ServeContextFilter())


def _is_no_access(record: logging.LogRecord) -> bool:
    return not getattr(record, "serve_access_log", False)


def serve_logging_config() -> dict[str, object] | None:
    """The logging config of this replica, for a deployment that it creates."""
    replica = _get_internal_replica_context()
    config = None if replica is None else replica._deployment_config.logging_config
    return None if config is None else dict(config)


def request_id() -> str:
    """The id of the HTTP request that the running task serves."""
    return str(_get_serve_request_context().request_id)


def bind_request_id(request_id: str) -> None:
    """Gives all later log lines of the running task the id of an HTTP request."""
    replica = _get_internal_replica_context()
    application = "" if replica is None else replica.app_name
    _serve_request_context.set(_RequestContext(request_id=request_id, app_name=application))


@dataclass(slots=True, eq=False)
class _Told:
    """A request's sequences so far. endings: how many ended so. failure: the first one."""

    first: str  # sequence
    n_running: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    failure: str = ""
    line: asyncio.TimerHandle | None = None


class SequenceLog:
    """Belongs to one event loop. Lines have the id of the HTTP request by themselves."""

    def __init__(self, pause_s: float = PAUSE_S) -> None:
        self._pause_s = pause_s
        self._told: dict[str, _Told] = {}

    def begin(self, sequence: str) -> None:
        told = self._told.setdefault(request_id() or sequence, _Told(sequence))
        told.n_running += 1
        if told.line is not None:
            told.line.cancel()
            told.line = None

    def end(self, sequence: str, last: TokenEvent | None) -> None:
        """`last` is the event that it ended with; None: it had none."""
        key = request_id() or sequence
        told = self._told[key]
        told.n_running -= 1
        told.endings[_ending(last)] += 1
        if last is not None and last.error is not None:
            told.failure = told.failure or last.error.message
        if not told.n_running:
            loop = asyncio.get_running_loop()
            told.line = loop.call_later(self._pause_s, self._write, key)

    def _write(self, key: str) -> None:
        told = self._told.pop(key)
        write = SERVE_LOG.warning if told.failure else SERVE_LOG.info
        write("%s", _line(told))


def _ending(last: TokenEvent | None) -> str:
    """One that does not end by itself was left: by its client, or at a stop string. An abort and
    the end of the stream both say so, and either may come first."""
    if last is None or last.finish_reason in (None, FinishReason.ABORT):
        return "was left"
    return "failed" if last.error is not None else f"ended: {last.finish_reason}"


def _line(told: _Told) -> str:
    failure = f": {told.failure}" if told.failure else ""
    n = told.endings.total()
    if n == 1:
        [ending] = told.endings
        return f"sequence {told.first} {ending}{failure}"
    counted = (f"{count} {_short(ending)}" for ending, count in told.endings.most_common())
    return f"{n} sequences, the first one {told.first}: {', '.join(counted)}{failure}"


def _short(ending: str) -> str:
    return ending.removeprefix("was ").removeprefix("ended: ")
