"""The actor around one engine: asyncio for other actors in front of the engine's thread.

Admission is the engine's: Serve's own limit on running calls is out of the way.
"""

import asyncio
import os
import pickle
import zlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

from ray import serve
from ray.serve.config import RequestRouterConfig

from deployments.contract.errors import ErrorKind, Refused, RequestError
from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.model_status import LoadProgress
from deployments.contract.requests import GenerationRequest
from deployments.contract.slots import SlotAction, SlotReport, SlotStatus
from deployments.model.autoscaling import ReplicaDemand
from deployments.model.channel_server import ChannelServers
from deployments.model.load_progress import ProgressReporter, ReportProgress
from deployments.model.metrics import engine_families, replica_families, tier_sizes
from deployments.model.pinned_routing import PinRouter
from deployments.model.reporter import Gauges, Reporter
from deployments.model.router_link import RouterLink
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings
from deployments.serving.detached_tasks import create_detached_task
from deployments.serving.draining import DRAIN_CHECK_S
from deployments.telemetry import logs
from deployments.telemetry.logs import SequenceLog
from deployments.telemetry.metric_families import MetricFamily
from deployments.telemetry.ray_exporter import export_to_ray
from kv.arrivals import PageKey
from kv.journal import Journal

if TYPE_CHECKING:  # they import torch, and the router imports this module
    from deployments.engine.core import EngineCore
    from deployments.engine.needs.remote_pages import PullPages
    from deployments.model.model_source import ModelSource
    from kv.tiers.parcel import PageReader, Parcel

# Serve's gRPC transport refuses messages over 4 MiB; tokenizers can be larger.
CARD_CHUNK_BYTES = 1 << 20
SPIN_COUNT = "1000000"  # some 40 milliseconds
MAX_ABORTED = 10_000


@serve.deployment(
    name=MODEL_DEPLOYMENT,
    max_ongoing_requests=10_000,
    health_check_period_s=2,
    health_check_timeout_s=10,
    graceful_shutdown_wait_loop_s=DRAIN_CHECK_S,
    max_constructor_retry_count=1,  # a model that can't be loaded can't be loaded a second later
    request_router_config=RequestRouterConfig(request_router_class=PinRouter),
)
class Model:
    # Async, which Serve awaits: a load takes long, and nothing may block the loop meanwhile.
    async def __init__(self, settings: ModelSettings) -> None:  # type: ignore[misc]
        # Threads that spin without end would stall ingresses and proxies if no core is left for
        # these. Threads that never spin make a step 1.5 times as long (tests/bench/RESULTS.md).
        # OpenMP reads the variable when torch loads it.
        if int(os.environ.get("OMP_NUM_THREADS", "1")) >= len(os.sched_getaffinity(0)):
            os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)
        logs.join_serve_log()
        self._settings = settings
        self._replica_id: str = serve.get_replica_context().replica_id.unique_id
        self._aborted: OrderedDict[str, None] = OrderedDict()
        self._log = SequenceLog()
        self._channels = ChannelServers(self._replica_id, self._events)
        self._router = RouterLink()
        from deployments.model.page_server import PagePuller, PageServer  # as load_engine says

        puller = PagePuller(settings.application)
        self._source, core, self._compressed_card = await self._load(puller)
        from deployments.model.sleeper import Sleeper  # as load_engine says

        self._card = self._source.card
        self._sleeper = Sleeper(
            self._source,
            core,
            settings.sleep_idle_s,
            settings.limits.max_waiting,
            self._engine_changed,
            settings.wake_timeout_s,
        )
        self._pages = PageServer(self._replica_id, self._own_pages)
        self._reporter = Reporter(
            settings.application,
            self._replica_id,
            core.cache.journal,
            self._gauges,
            self._router.report,
        )
        loop = asyncio.get_running_loop()
        background = (self._sleeper.run(), self._reporter.run(), export_to_ray(self.samples))
        self._work = [loop.create_task(coroutine) for coroutine in background]
        if core.pages is not None and settings.may_have_peers:
            self._connecting = create_detached_task(puller.connect())

    async def _load(self, pull: "PullPages") -> "tuple[ModelSource, EngineCore, bytes]":
        async def send(progress: LoadProgress) -> None:
            await self._router.progress(self._settings.application, progress)

        progress = ProgressReporter(send)
        telling = asyncio.get_running_loop().create_task(progress.run())
        try:
            return await asyncio.to_thread(load_engine, self._settings, progress.report, pull)
        finally:
            telling.cancel()

    async def generate(
        self, pin: str | None, version: str, request: GenerationRequest
    ) -> AsyncGenerator[TokenEvent, None]:
        """Events of one sequence, whose ids were made by the card of this version; HEARTBEAT when
        it says nothing for long.

        `pin` is for PinRouter alone.
        """
        async with aclosing(self._channels.open_single(version, request)) as events:
            async for event in events:
                yield event

    async def open_channel(
        self, pin: str | None, name: str, update: bytes
    ) -> AsyncGenerator[bytes, None]:
        """Events of many sequences, of which `update` has the first ones; see ChannelServers."""
        async with aclosing(self._channels.open(name, update)) as bursts:
            async for burst in bursts:
                yield burst

    async def update_channel(self, pin: str | None, name: str, update: bytes) -> bool:
        """Whether the channel is here, and has taken the update."""
        return self._channels.update(name, update)

    async def heartbeat(self, *request_ids: str) -> None:
        """The ingress of these sequences, which have streams of their own, lives."""
        self._channels.heartbeat(request_ids)

    async def abort(self, *request_ids: str) -> None:
        """Ends requests, also those that arrive only later.

        Cancellation says the same and is sometimes lost.
        """
        for request_id in request_ids:
            self._aborted[request_id] = None
            if len(self._aborted) > MAX_ABORTED:
                self._aborted.popitem(last=False)
            self._sleeper.abort(request_id)

    async def complete(self, *request_ids: str) -> None:
        """Ends sequences, which have streams of their own, as complete: at a stop string."""
        self._channels.complete(request_ids)

    async def end_thoughts(self, response_id: str) -> bool:
        """Ends the thinking of a response; whether it runs here and could be told."""
        return self._sleeper.end_thoughts(response_id)

    async def act_on_slot(
        self, pin: str | None, request_id: str, action: SlotAction
    ) -> SlotReport | RequestError:
        """Saves, restores or erases a slot here. Wakes an engine that sleeps."""
        self._reporter.received(request_id)
        try:
            async with self._sleeper.engine() as core:
                return await core.act_on_slot(action)
        except Refused as refused:
            return refused.error

    async def slots(self, owner: str) -> tuple[str, Mapping[int, SlotStatus]]:
        """Its id, and what the slots of an owner hold here."""
        return self._replica_id, self._sleeper.slots_of(owner)

    async def card(self) -> AsyncGenerator[bytes, None]:
        """The model card, pickled and compressed, in pieces."""
        for at in range(0, len(self._compressed_card), CARD_CHUNK_BYTES):
            yield self._compressed_card[at : at + CARD_CHUNK_BYTES]

    async def read_pages(
        self, pin: str | None, namespace: bytes, keys: Sequence[PageKey]
    ) -> "Parcel":
        """The leading ones of these pages that are here, for another replica, as a parcel; none
        where `pin` is not this one, which PinRouter takes where that is gone.
        """
        return await self._pages.read(pin, namespace, keys)

    async def settings(self) -> ModelSettings:
        return self._settings

    async def busy(self) -> int:
        """Requests that run or wait here. Raises RuntimeError when the engine is dead."""
        self._sleeper.check_health()
        return self._sleeper.users

    async def stats(self) -> tuple[str, dict[str, float]]:
        """Its id, and its statistics."""
        sleeping = {"sleeping": float(self._sleeper.sleeping)}
        return self._replica_id, self._sleeper.stats().as_dict() | sleeping

    async def samples(self) -> tuple[dict[str, str], list[MetricFamily]]:
        """Its metrics, and the labels that distinguish the replica."""
        labels = {"model": self._settings.name, "replica": self._replica_id}
        own = replica_families(self._sleeper.sleeping, self._source.gpu_memory())
        return labels, engine_families(self._sleeper.stats()) + own

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """The demand that Serve passes to the policy."""
        stats = self._sleeper.stats()
        demand = ReplicaDemand(
            requests=self._sleeper.users, tokens=stats.context_tokens, usage=stats.cache_usage
        )
        return demand.as_dict()

    # Async, so that it always runs on the event loop.
    async def check_health(self) -> None:
        """Raises when the engine can't go on, or a background task has ended."""
        # Here, because Serve checks only while it sends calls: a replica that stops gets no
        # heartbeats of ingresses.
        self._channels.expire()
        self._sleeper.check_health()
        for task in self._work:
            if task.done():
                task.result()

    def __del__(self) -> None:
        if hasattr(self, "_sleeper"):  # else its constructor failed
            self._sleeper.close()

    async def _events(
        self, version: str, request: GenerationRequest, is_complete: Callable[[], bool]
    ) -> AsyncGenerator[TokenEvent, None]:
        self._reporter.received(request.request_id)  # else the router counts it as in flight
        if refusal := self._refusal(version, request):
            yield refusal
            return
        try:
            async with self._sleeper.engine() as core:
                if refusal := self._refusal(version, request):  # it was aborted meanwhile
                    yield refusal
                    return
                last: TokenEvent | None = None
                self._log.begin(request.request_id)
                try:
                    async with aclosing(core.stream(request, is_complete)) as events:
                        async for last in events:
                            yield last
                finally:
                    self._log.end(request.request_id, last)
        except Refused as refused:
            yield TokenEvent(finish_reason=FinishReason.ERROR, error=refused.error)

    def _refusal(self, version: str, request: GenerationRequest) -> TokenEvent | None:
        """The last event of a request that must not reach the engine."""
        if version != self._card.version:
            return TokenEvent.failed("The model was replaced; try again", ErrorKind.MODEL_REPLACED)
        if request.request_id in self._aborted:
            return TokenEvent(finish_reason=FinishReason.ABORT)
        return None

    def _own_pages(self) -> "PageReader | None":
        return None if self._sleeper.core is None else self._sleeper.core.pages

    def _engine_changed(self, core: "EngineCore | None") -> None:
        """The pages of the last engine are gone."""
        self._reporter.restart(Journal() if core is None else core.cache.journal)

    def _gauges(self) -> Gauges:
        stats = self._sleeper.stats()
        return Gauges(
            running=stats.active_requests,
            waiting=stats.waiting_requests,
            pending_tokens=stats.pending_tokens,
            context_tokens=stats.context_tokens,
            pages_used=stats.pages_used,
            pages_total=stats.pages_total,
            page_size=self._card.page_size,
            preemptions=stats.preemptions,
            tokens_generated=stats.tokens_generated,
            tiers=tier_sizes(stats),
            idle_s=self._sleeper.idle_s,
            sleeping=self._sleeper.sleeping,
            failure=self._sleeper.failure,
            version=self._card.version,
            pull_cost=stats.kv_remote_cost,
        )


def load_engine(
    settings: ModelSettings, report: ReportProgress, pull: "PullPages"
) -> "tuple[ModelSource, EngineCore, bytes]":
    """The model's first engine, and its card, pickled and compressed."""
    # Not at the top: the router imports this module and must stay free of torch and NumPy.
    from deployments.model.model_source import ModelSource

    source = ModelSource(settings, report, pull)
    core = source.start()
    return source, core, zlib.compress(pickle.dumps(source.card), level=1)
