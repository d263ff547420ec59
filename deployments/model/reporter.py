"""Reports to the router what a replica holds and how busy it is. Generation never waits for it.

Every report has the next sequence number, whether or not the last one arrived: the router notices
a gap, and what it then asks for goes with the next report.
"""

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields

from deployments.contract.replica_status import ReplicaReport, TierSize
from kv.content import DIGEST_BYTES
from kv.journal import Journal

log = logging.getLogger("ray.serve")

REPORT_INTERVAL_S = 0.2
IDLE_HEARTBEAT_S = 1.0
BUSY_HEARTBEAT_S = 0.5
SEND_TIMEOUT_S = 2.0
MAX_BACKOFF_S = 2.0
MAX_RECEIVED = 4096
# Half a MiB: Serve's gRPC transport refuses 4 MiB, and a router takes it in within 10 ms or so.
MAX_BYTES = 32_768 * DIGEST_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauges:
    """How busy a replica is now; the fields are those of ReplicaReport."""

    running: int = 0
    waiting: int = 0
    pending_tokens: int = 0
    context_tokens: int = 0
    pages_used: int = 0
    pages_total: int = 0
    page_size: int = 0
    preemptions: int = 0
    tokens_generated: int = 0
    tiers: tuple[TierSize, ...] = ()
    idle_s: float = 0.0
    sleeping: bool = False
    failure: str = ""
    version: str = ""
    pull_cost: float = 0.0

    @property
    def is_busy(self) -> bool:
        return self.running + self.waiting > 0

    def needs_report_after(self, other: "Gauges") -> bool:
        """Whether to report before the next heartbeat."""
        return self._news != other._news

    @property
    def _news(self) -> tuple[object, ...]:
        return self.running, self.waiting, self.pending_tokens, self.sleeping, self.failure


class ReportWriter:
    """Makes one replica's reports and knows when the next is due; `gauges` must not block."""

    def __init__(
        self, application: str, replica_id: str, journal: Journal, gauges: Callable[[], Gauges]
    ) -> None:
        self._application = application
        self._replica_id = replica_id
        self._gauges = gauges
        self._received: deque[str] = deque(maxlen=MAX_RECEIVED)
        self._last = Gauges()
        self._last_at = float("-inf")
        self.restart(journal)

    def restart(self, journal: Journal) -> None:
        """A new epoch, with what this journal knows."""
        self._journal = journal
        self._epoch = uuid.uuid4().hex
        self._sequence = 0
        self._wants_snapshot = True
        # Drained, and too much for one report.
        self._stored, self._evicted = bytearray(), bytearray()

    def received(self, request_id: str) -> None:
        self._received.append(request_id)

    def due(self, now: float) -> bool:
        """Whether to write a report now, when the next chance comes REPORT_INTERVAL_S later."""
        gauges = self._gauges()
        heartbeat = BUSY_HEARTBEAT_S if gauges.is_busy else IDLE_HEARTBEAT_S
        return (
            self._has_news
            or gauges.needs_report_after(self._last)
            or now + REPORT_INTERVAL_S > self._last_at + heartbeat
        )

    def write(self, now: float) -> ReplicaReport:
        is_snapshot, self._wants_snapshot = self._wants_snapshot, False
        self._drain(is_snapshot)
        self._sequence += 1
        self._last, self._last_at = self._gauges(), now
        received = tuple(self._received)
        self._received.clear()
        return ReplicaReport(
            application=self._application,
            replica_id=self._replica_id,
            epoch=self._epoch,
            sequence=self._sequence,
            snapshot=is_snapshot,
            stored=_cut(self._stored),
            evicted=_cut(self._evicted),
            received=received,
            **{field.name: getattr(self._last, field.name) for field in fields(Gauges)},
        )

    def answered(self, wants_snapshot: bool) -> None:
        self._wants_snapshot |= wants_snapshot

    def failed(self, report: ReplicaReport) -> None:
        """The router may have got it or not: to name requests twice does no harm."""
        self._received.extendleft(reversed(report.received))

    @property
    def _has_news(self) -> bool:
        is_empty = not (self._stored or self._evicted or self._received or self._wants_snapshot)
        return not is_empty or self._journal.changed

    def _drain(self, is_snapshot: bool) -> None:
        """Takes the pages to report. The journal is drained again only after the last ones were
        sent.
        """
        if is_snapshot:
            self._journal.drain()
            self._stored, self._evicted = bytearray(self._journal.snapshot()), bytearray()
        elif not self._stored and not self._evicted:
            stored, evicted = self._journal.drain()
            self._stored, self._evicted = bytearray(stored), bytearray(evicted)


class Reporter:
    """Sends reports until `run` is cancelled.

    `gauges` is asked on the event loop; what it raises ends `run`. `send` may raise anything.
    `journal` belongs to the reporter from now on: nobody else may drain it.
    """

    def __init__(
        self,
        application: str,
        replica_id: str,
        journal: Journal,
        gauges: Callable[[], Gauges],
        send: Callable[[ReplicaReport], Awaitable[bool]],
        wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._writer = ReportWriter(application, replica_id, journal, gauges)
        self._send = send
        self._wait = wait
        self._is_heard = True

    def received(self, request_id: str) -> None:
        """A request has come: the next report names it."""
        self._writer.received(request_id)

    def restart(self, journal: Journal) -> None:
        """The replica starts over with an empty cache and this journal."""
        self._writer.restart(journal)

    async def run(self) -> None:
        delay = REPORT_INTERVAL_S
        while True:
            if self._writer.due(time.monotonic()):
                await self._report()
            delay = REPORT_INTERVAL_S if self._is_heard else min(2 * delay, MAX_BACKOFF_S)
            await self._wait(delay)

    async def _report(self) -> None:
        report = self._writer.write(time.monotonic())
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                wants_snapshot = await self._send(report)
        except (Exception, asyncio.CancelledError) as error:
            if _is_cancelled():  # this task, and not the call alone
                raise
            self._writer.failed(report)
            self._set_heard(False, repr(error))
        else:
            self._writer.answered(wants_snapshot)
            self._set_heard(True, "")

    def _set_heard(self, is_heard: bool, why: str) -> None:
        """Logs when the router stops answering, and when it answers again."""
        if is_heard != self._is_heard:
            log.warning(
                "the router answers again" if is_heard else f"no answer by the router: {why}"
            )
        self._is_heard = is_heard


def _cut(backlog: bytearray) -> bytes:
    taken = bytes(backlog[:MAX_BYTES])
    del backlog[:MAX_BYTES]
    return taken


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
