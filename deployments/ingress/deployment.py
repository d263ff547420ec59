"""The base of all deployments with HTTP; those of protocols have the fleet and metrics, too."""

import asyncio
import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace

from ray import serve
from ray.exceptions import TaskCancelledError
from ray.serve._private.constants import RAY_SERVE_ENABLE_HA_PROXY
from ray.serve.context import _get_global_client
from ray.serve.deployment import Deployment
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.contract.errors import Refused, RequestError
from deployments.ingress.fleet.fleet import Fleet
from deployments.ingress.host_names import HostNames
from deployments.ingress.http.app import SingleRequestId
from deployments.ingress.metrics import Latencies, Metrics
from deployments.ingress.settings import IngressSettings
from deployments.ingress.stopping import Stopping
from deployments.ingress.streams.peers import StreamKey, StreamState, no_stream
from deployments.ingress.streams.replay_buffer import StreamPart
from deployments.ingress.streams.resumable_streams import ResumableStreams
from deployments.ingress.streams.serve_peers import PART_BYTES, PART_WAIT_S, ServePeers
from deployments.serving.draining import DRAIN_CHECK_S, SHORT_DRAINING
from deployments.telemetry.logs import join_serve_log
from deployments.telemetry.metric_families import MetricFamily
from deployments.telemetry.ray_exporter import export_to_ray

PROBE_S = 1.0


class HttpIngress(ABC):
    """An ASGI application under Serve, in a process free of torch."""

    def __init__(self, settings: IngressSettings) -> None:
        # Serve's HAProxy adds no X-Forwarded-For: all clients look like the proxy, or like what
        # they write there themselves.
        behind = bool(RAY_SERVE_ENABLE_HA_PROXY)
        probe_s = PROBE_S if behind else None
        names = HostNames(settings.hosts, listens_at)
        self._stopping = Stopping()
        self._settings = replace(
            settings,
            probe_s=probe_s,
            sees_peers=not behind,
            host_names=names,
            stopping=self._stopping,
        )
        # A request makes thousands of objects and hardly a reference cycle.
        gc.set_threshold(10_000)
        join_serve_log()

    @abstractmethod
    def begin(self, settings: IngressSettings) -> ASGIApp:
        """The application, in the event loop that runs it."""

    async def end_answers(self) -> None:
        """The server stops: returns when no answer is under way here any more."""
        await self._stopping.end(self._settings.stop_timeout_s)

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return SingleRequestId(told_of_leaving(self.begin(self._settings)))


class ProtocolIngress(HttpIngress):
    """A protocol over the fleet."""

    def __init__(self, settings: IngressSettings) -> None:
        super().__init__(settings)
        self._metrics = Metrics()
        self._streams = ResumableStreams(peers=_peers())
        self._fleet: Fleet | None = None  # until it begins

    @abstractmethod
    def app(
        self,
        fleet: Fleet,
        metrics: Metrics,
        settings: IngressSettings,
        streams: ResumableStreams,
    ) -> ASGIApp: ...

    def begin(self, settings: IngressSettings) -> ASGIApp:
        self._mirror = asyncio.get_running_loop().create_task(export_to_ray(self.samples))
        self._fleet = Fleet(settings, self._metrics)
        return self.app(self._fleet, self._metrics, settings, self._streams)

    async def end_thoughts(self, response_id: str, models: Sequence[str]) -> bool:
        """Notes that the thinking of a response of one of these models is to end; whether it is
        one of this replica's.
        """
        return self._fleet is not None and self._fleet.end_thoughts(response_id, models)

    async def kept_streams(self, owner: str, names: Sequence[str]) -> list[StreamState]:
        """The owner's streams of these names that this replica keeps."""
        return self._streams.states(owner, names, replica_id=_replica_id())

    async def stop_stream(self, caller: str, key: StreamKey, before: float) -> None:
        """Stops a stream that began before that, for another replica of this id."""
        kept = self._streams.find(key)
        if kept is not None and kept.began < before and caller != _replica_id():
            self._streams.stop(key)

    async def read_stream(
        self, replica_id: str, key: StreamKey, offset: int
    ) -> StreamPart | RequestError | None:
        """Returns a part of a stream for a replica that passes the bytes on.

        Returns None on all replicas but `replica_id`.
        """
        if replica_id != _replica_id():
            return None
        kept = self._streams.find(key)
        if kept is None:
            return no_stream().error
        with self._streams.reading(kept):
            try:
                return await kept.replay.part(offset, PART_WAIT_S, PART_BYTES)
            except Refused as refusal:
                return refusal.error

    async def samples(self) -> tuple[dict[str, str], list[MetricFamily]]:
        """Its metrics, and the labels that distinguish its replica."""
        return {"replica": _replica_id()}, self._metrics.samples()

    async def latencies(self) -> tuple[str, dict[str, Latencies]]:
        """Its id, and how long its requests waited for tokens, by model."""
        return _replica_id(), self._metrics.latencies()


def _replica_id() -> str:
    replica_id: str = serve.get_replica_context().replica_id.unique_id
    return replica_id


def _peers() -> ServePeers:
    own = serve.get_replica_context()
    return ServePeers(own.app_name, own.deployment, _replica_id())


def told_of_leaving(app: ASGIApp) -> ASGIApp:
    """Serve's Python proxy cancels what it sends of a body when its client leaves. The app hears of
    a failure then, and is told of a client that has left.
    """

    async def told(scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_or_left() -> Message:
            try:
                return await receive()
            except TaskCancelledError:
                return {"type": "http.disconnect"}

        await app(scope, receive_or_left, send)

    return told


def listens_at() -> str | None:
    """Returns the host on which Serve's proxies listen. It blocks."""
    host: str | None = _get_global_client().http_config.host
    return host


def ingress_deployment(name: str) -> Callable[[type[HttpIngress]], Deployment]:
    """Makes an ingress a Serve deployment of this name, which needs no CPU of its own."""

    def deployed(ingress: type[HttpIngress]) -> Deployment:
        deployment: Deployment = serve.deployment(
            serve.ingress()(ingress),
            name=name,
            max_ongoing_requests=10_000,
            graceful_shutdown_wait_loop_s=DRAIN_CHECK_S,
            ray_actor_options={"num_cpus": 0, "runtime_env": SHORT_DRAINING},
        )
        return deployment

    return deployed
