"""A replica's reports: one after the other, when there is news, whatever becomes of the router."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from deployments.contract.replica_status import ReplicaReport
from deployments.model.reporter import (
    BUSY_HEARTBEAT_S,
    IDLE_HEARTBEAT_S,
    MAX_BACKOFF_S,
    MAX_BYTES,
    MAX_RECEIVED,
    REPORT_INTERVAL_S,
    Gauges,
    Reporter,
    ReportWriter,
)
from kv.content import page_hashes
from kv.journal import Journal


class Engine:
    """The journal and gauges of a replica's engine, set by the test."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.gauges = Gauges()

    def writer(self) -> ReportWriter:
        return ReportWriter("model-m", "r", self.journal, lambda: self.gauges)

    def store(self, tokens: range) -> list[bytes]:
        hashes = page_hashes(tokens, 1)
        for page_hash in hashes:
            self.journal.stored(page_hash)
        return hashes


def wait_after(writer: ReportWriter, start: float) -> float:
    """Seconds from `start` until a report is due, asked as often as the reporter asks."""
    times = (n * REPORT_INTERVAL_S for n in range(100))
    return next(after for after in times if writer.due(start + after))


def test_the_first_report_is_a_snapshot_and_later_ones_add_to_it() -> None:
    engine = Engine()
    early = engine.store(range(3))
    writer = engine.writer()
    first = writer.write(0.0)
    assert first.snapshot
    assert {first.stored[at : at + 16] for at in (0, 16, 32)} == set(early)
    engine.journal.evicted(early[2])
    second = writer.write(1.0)
    assert (second.snapshot, second.stored, second.evicted) == (False, b"", early[2])
    assert (first.sequence, second.sequence) == (1, 2)
    assert first.epoch == second.epoch


def test_an_idle_replica_that_has_nothing_to_tell_sends_a_heartbeat() -> None:
    writer = Engine().writer()
    writer.write(100.0)
    assert IDLE_HEARTBEAT_S - REPORT_INTERVAL_S < wait_after(writer, 100.0) <= IDLE_HEARTBEAT_S


def test_a_busy_one_sends_it_more_often() -> None:
    engine = Engine()
    engine.gauges = Gauges(running=1)
    writer = engine.writer()
    writer.write(100.0)
    assert BUSY_HEARTBEAT_S - REPORT_INTERVAL_S <= wait_after(writer, 100.0) <= BUSY_HEARTBEAT_S


@pytest.mark.parametrize(
    "happens",
    [
        lambda engine, writer: engine.store(range(1)),
        lambda engine, writer: writer.received("a"),
        lambda engine, writer: writer.answered(True),
        lambda engine, writer: setattr(engine, "gauges", Gauges(waiting=1)),
        lambda engine, writer: setattr(engine, "gauges", Gauges(sleeping=True)),
    ],
)
def test_news_does_not_wait_for_the_heartbeat(
    happens: Callable[[Engine, ReportWriter], None],
) -> None:
    engine = Engine()
    writer = engine.writer()
    writer.write(100.0)
    assert not writer.due(100.0)
    happens(engine, writer)
    assert writer.due(100.0)


def test_a_wanted_snapshot_holds_everything_and_comes_next() -> None:
    engine = Engine()
    writer = engine.writer()
    engine.store(range(2))
    writer.write(0.0)
    engine.store(range(5, 7))
    writer.answered(True)
    report = writer.write(1.0)
    assert report.snapshot
    assert len(report.stored) == 4 * 16
    assert not writer.write(2.0).snapshot


def test_what_is_too_much_for_one_report_follows_in_the_next() -> None:
    engine = Engine()
    hashes = engine.store(range(MAX_BYTES // 16 + 2))
    writer = engine.writer()
    first = writer.write(0.0)
    engine.journal.evicted(hashes[0])
    assert writer.due(0.0)
    second, third = writer.write(1.0), writer.write(2.0)
    assert (first.snapshot, second.snapshot) == (True, False)
    stored = first.stored + second.stored
    assert (len(first.stored), len(stored)) == (MAX_BYTES, len(hashes) * 16)
    assert {stored[at : at + 16] for at in range(0, len(stored), 16)} == set(hashes)
    assert (second.evicted, third.evicted) == (b"", hashes[0])


def test_another_cache_is_another_epoch() -> None:
    engine = Engine()
    engine.store(range(3))
    writer = engine.writer()
    before = [writer.write(0.0), writer.write(1.0)]
    writer.restart(Journal())
    after = writer.write(2.0)
    assert (after.sequence, after.snapshot, after.stored) == (1, True, b"")
    assert after.epoch not in {report.epoch for report in before}


def test_ids_of_a_report_that_failed_are_told_again() -> None:
    writer = Engine().writer()
    writer.received("a")
    lost = writer.write(0.0)
    writer.failed(lost)
    writer.received("b")
    assert writer.write(1.0).received == ("a", "b")
    assert writer.write(2.0).received == ()


def test_ids_do_not_pile_up() -> None:
    writer = Engine().writer()
    for number in range(MAX_RECEIVED + 5):
        writer.received(str(number))
    report = writer.write(0.0)
    assert len(report.received) == MAX_RECEIVED
    assert report.received[-1] == str(MAX_RECEIVED + 4)


class Line:
    """A router that answers as the test says; `answers` ended, the reporter is stopped."""

    def __init__(self, answers: list[bool | BaseException]) -> None:
        self.answers = answers
        self.reports: list[ReplicaReport] = []
        self.waits: list[float] = []

    async def send(self, report: ReplicaReport) -> bool:
        self.reports.append(report)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        if not self.answers:
            raise asyncio.CancelledError

    def run(self) -> None:
        """Runs until there are no more answers; there is always something to report."""
        reporter = Reporter("model-m", "r", Journal(), Gauges, self.send, self._busy(self.wait))
        self.reporter = reporter
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(reporter.run())

    def _busy(self, wait: Callable[[float], Awaitable[None]]) -> Callable[[float], Awaitable[None]]:
        async def waiting(seconds: float) -> None:
            self.reporter.received("x")
            await wait(seconds)

        return waiting


def test_a_router_that_wants_a_snapshot_gets_it() -> None:
    line = Line([False, True, False, False])
    line.run()
    assert [report.snapshot for report in line.reports] == [True, False, True, False]
    assert line.waits == [REPORT_INTERVAL_S] * 4


def test_a_dead_router_is_tried_ever_less_often_and_then_found_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    dead: list[bool | BaseException] = [ConnectionError("gone"), asyncio.CancelledError()] * 4
    line = Line([False, *dead, False])
    line.run()
    assert line.waits == sorted(line.waits[:-1]) + [REPORT_INTERVAL_S]
    assert line.waits[-2] == MAX_BACKOFF_S
    assert [report.sequence for report in line.reports] == list(range(1, 11))
    assert len(caplog.records) == 2


def test_a_router_that_never_answers_is_given_up_at_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("deployments.model.reporter.SEND_TIMEOUT_S", 0.0)
    line = Line([False, False])
    answer = line.send

    async def hang(report: ReplicaReport) -> bool:
        await answer(report)
        await asyncio.Event().wait()
        return False

    line.send = hang  # type: ignore[method-assign]
    line.run()
    assert [report.sequence for report in line.reports] == [1, 2]
    assert line.waits == [2 * REPORT_INTERVAL_S, 4 * REPORT_INTERVAL_S]


def test_cancelling_the_reporter_ends_it_in_the_middle_of_a_report() -> None:
    async def scenario() -> None:
        sending = asyncio.Event()

        async def hang(report: ReplicaReport) -> bool:
            sending.set()
            await asyncio.Event().wait()
            return False

        task = asyncio.create_task(Reporter("model-m", "r", Journal(), Gauges, hang).run())
        await sending.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
