"""The progress of a load: reported by its thread, sent to the log and to the router."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from deployments.contract.model_status import LoadProgress

log = logging.getLogger("ray.serve")

ReportProgress = Callable[[str, float], None]  # stage, and the share of it that is done, 0 to 1

MIN_STEP = 0.01
LOG_INTERVAL_S = 10.0  # a load that takes less says only that it is done
REPORT_INTERVAL_S = 0.25


class ProgressReporter:
    """`report` may be called from any thread. `run` sends the latest until it is cancelled."""

    def __init__(self, send: Callable[[LoadProgress], Awaitable[None]]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._latest = LoadProgress(stage="", value=0.0)
        self._logged_at = time.monotonic()

    def report(self, stage: str, value: float) -> None:
        progress = LoadProgress(stage=stage, value=value)
        if has_moved(self._latest, progress, MIN_STEP):
            self._latest = progress
            self._loop.call_soon_threadsafe(self._news.set)
        if time.monotonic() >= self._logged_at + LOG_INTERVAL_S:
            self._logged_at = time.monotonic()
            log.info("loading: %s %.0f%%", stage, 100 * value)

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self._send(self._latest)
            except Exception as error:
                log.debug("the router heard nothing of the load: %r", error)
            await asyncio.sleep(REPORT_INTERVAL_S)


def has_moved(before: LoadProgress, now: LoadProgress, step: float) -> bool:
    if now.stage != before.stage:
        return True
    return now.value - before.value >= step or now.value == 1.0 > before.value
