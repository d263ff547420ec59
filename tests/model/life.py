"""A replica's engine over its sleeps, for tests, and what was heard of it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from deployments.contract.events import TokenEvent
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.core import EngineCore
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.quantization import Quantization
from deployments.model.model_source import ModelSource
from deployments.model.settings import ModelSettings
from deployments.model.sleeper import Sleeper
from kv.journal import Journal

LIMITS = EngineLimits(n_pages=64, max_running=4, context_length=256)
GREEDY = SamplingParams(temperature=0)
SAMPLED = SamplingParams(temperature=0.9, seed=7)


class Life:
    """A replica's engine over its sleeps, and what was heard of it."""

    def __init__(
        self, path: Path, limits: EngineLimits = LIMITS, quantization: Quantization = "none"
    ) -> None:
        self.said: list[tuple[str, float]] = []
        self.journals: list[Journal | None] = []  # of engines that came, None where one went
        self.changed = asyncio.Event()
        self._limits = limits
        settings = ModelSettings(
            name="m", path=str(path), dtype="float32", quantization=quantization, limits=limits
        )
        self.source = ModelSource(settings, lambda *said: self.said.append(said))

    @property
    def n_starts(self) -> int:
        return self.said.count(("engine", 1.0))

    @asynccontextmanager
    async def begin(
        self, idle_s: float | None = None, wake_timeout_s: float = 60.0
    ) -> AsyncGenerator[Sleeper, None]:
        core = await asyncio.to_thread(self.source.start)
        sleeper = Sleeper(
            self.source,
            core,
            idle_s,
            self._limits.max_waiting,
            self._heard,
            wake_timeout_s,
            retry_s=0.05,
        )
        del core
        try:
            yield sleeper
        finally:
            await asyncio.to_thread(sleeper.close)

    def _heard(self, core: EngineCore | None) -> None:
        self.journals.append(None if core is None else core.cache.journal)
        self.changed.set()


def request(sampling: SamplingParams) -> GenerationRequest:
    return GenerationRequest(
        request_id="r",
        prompt_ids=tuple(range(40, 80)),
        sampling=sampling,
        max_tokens=24,
        ignore_eos=True,
    )


async def ask(sleeper: Sleeper, sampling: SamplingParams = GREEDY) -> list[TokenEvent]:
    async with sleeper.engine() as core:
        return [event async for event in core.stream(request(sampling))]


def ids(events: list[TokenEvent]) -> list[int]:
    assert events[-1].error is None
    return [token_id for event in events for token_id in event.token_ids]
