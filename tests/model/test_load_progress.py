"""The progress of a load arrives where it can, and nobody waits for it."""

import asyncio

from deployments.contract.model_status import LoadProgress
from deployments.model.load_progress import ProgressReporter


def test_the_last_word_arrives_whatever_was_left_out() -> None:
    async def scenario() -> list[LoadProgress]:
        told: list[LoadProgress] = []
        heard = asyncio.Event()

        async def send(progress: LoadProgress) -> None:
            told.append(progress)
            if progress.stage == "engine":
                heard.set()

        progress = ProgressReporter(send)
        telling = asyncio.create_task(progress.run())
        await asyncio.to_thread(say_all, progress)
        await heard.wait()
        telling.cancel()
        return told

    told = asyncio.run(scenario())
    assert told[-1] == LoadProgress(stage="engine", value=1.0)
    assert len(told) <= 100


def say_all(progress: ProgressReporter) -> None:
    for n in range(10_000):
        progress.report("weights", n / 10_000)
    progress.report("engine", 1.0)


def test_a_router_that_is_missing_ends_nothing() -> None:
    async def scenario() -> None:
        called = asyncio.Event()

        async def send(progress: LoadProgress) -> None:
            called.set()
            raise ConnectionError("no router")

        progress = ProgressReporter(send)
        telling = asyncio.create_task(progress.run())
        for stage in ("weights", "engine"):
            progress.report(stage, 0.0)
            await called.wait()
            called.clear()
        assert not telling.done()
        telling.cancel()

    asyncio.run(scenario())
