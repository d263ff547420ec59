"""The real router and real models on a Ray cluster of the test's own, with ways to watch them."""

import pickle
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.handle import DeploymentHandle

from deployments.contract.channel import HEARTBEAT_S
from deployments.contract.errors import RequestError
from deployments.contract.model_status import ModelState, ModelStatus
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.contract.routing import RoutingDecision, RoutingQuery
from deployments.engine.limits import EngineLimits
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings, application_name
from deployments.router.deployment import Router
from deployments.router.lifecycle.applications import read_applications
from deployments.router.presets.sources import Sources
from deployments.router.settings import CapacitySettings, RoutingSettings

PATIENCE_S = 240  # for anything at all, on a machine that others use too
CALL_S = 60
POLL_S = 0.25  # between two looks at what nothing tells of by itself
LIMITS = EngineLimits(n_pages=4096, max_running=4)


def settings(path: Path, name: str) -> ModelSettings:
    return ModelSettings(
        name=name, path=str(path), num_cpus=1, dtype="float32", stop_timeout_s=5, limits=LIMITS
    )


@contextmanager
def cluster() -> Iterator[None]:
    for attempt in range(3):
        try:
            _begin()
            break
        except Exception as error:  # its node waits 15 s for its agents, and aborts
            ray.shutdown()
            if attempt == 2 or "timed out during startup" not in str(error):
                raise
    try:
        serve.start(proxy_location="Disabled")
        yield
    finally:
        serve.shutdown()
        ray.shutdown()


def _begin() -> None:
    ray.init(
        address="local",
        num_cpus=8,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        _system_config={"worker_niceness": 0},  # else what runs beside a test starves what it tests
    )


class Fleet:
    """Blocks, each call up to a limit of its own."""

    def __init__(self) -> None:
        self.router = serve.get_deployment_handle("Router", "router")

    def call(self, method: str, *arguments: str) -> RequestError | None:
        """Calls load, unload or reload of the router."""
        refused: RequestError | None = (
            getattr(self.router, method).remote(*arguments).result(timeout_s=CALL_S)
        )
        return refused

    def count(self, metric: str, model: str) -> float:
        """Reads a counter of the router's."""
        _, families = self.router.samples.remote().result(timeout_s=CALL_S)
        family = next(f for f in families if f.name == metric)
        return float(sum(v for _, labels, v in family.samples if labels["model"] == model))

    def models(self) -> dict[str, ModelStatus]:
        statuses: list[ModelStatus] = self.router.models.remote().result(timeout_s=CALL_S)
        return {status.name: status for status in statuses}

    def state(self, name: str) -> ModelState:
        return self.models()[name].state

    def want(self, name: str | None, who: str = "me") -> ModelStatus | RequestError:
        """Asks as an ingress does: again and again, until the model is up or can't be."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer: ModelStatus | RequestError = self.router.ensure_loaded.remote(
                name, who, 10.0
            ).result(timeout_s=CALL_S)
            if isinstance(answer, RequestError) or answer.state in ENDED:
                return answer
            assert time.monotonic() < deadline, answer

    def until(self, condition: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
        """Asks after every change of the models."""
        deadline, version = time.monotonic() + seconds, 0
        while not condition():
            assert time.monotonic() < deadline, f"never: {what}"
            with suppress(RayError):  # a router that is being replaced
                version, _ = self.router.changes.remote(version, 0.5).result(timeout_s=CALL_S)

    def until_state(self, name: str, state: ModelState, seconds: float = PATIENCE_S) -> None:
        self.until(lambda: self.state(name) is state, f"{name} is {state}", seconds)

    def replicas(self, name: str) -> frozenset[str]:
        """Ids of those that Serve runs."""
        found = read_applications().get(application_name(name))
        return frozenset() if found is None else found.running

    def choose(self, name: str, request_id: str) -> RoutingDecision:
        """Chooses a replica for a request, which is then counted as on its way."""
        asked = [RoutingQuery(name, (), request_id, "", "", "")]
        choice: RoutingDecision
        [choice] = self.router.choose.remote(asked).result(timeout_s=CALL_S)
        return choice

    def kill_router(self) -> None:
        """Kills the router as a crash would; returns when there is another one."""
        labels, _ = self.router.samples.remote().result(timeout_s=CALL_S)
        actor = f"SERVE_REPLICA::router#Router#{labels['replica']}"
        ray.kill(ray.get_actor(actor, namespace="serve"), no_restart=True)
        self.until(lambda: self.replica() != labels["replica"], "another router")

    def replica(self) -> str | None:
        """Id of the router's own replica, if one answers."""
        try:
            labels, _ = self.router.samples.remote().result(timeout_s=CALL_S)
        except RayError:
            return None
        return str(labels["replica"])

    def model(self, name: str) -> DeploymentHandle:
        return serve.get_deployment_handle(MODEL_DEPLOYMENT, application_name(name))

    @contextmanager
    def stream(self, name: str, request_id: str = "r") -> Iterator[Iterator[object]]:
        """Tokens of a sequence that ends only when it is left."""
        model = self.model(name)
        card = read_card(model)
        request = GenerationRequest(
            request_id=request_id,
            prompt_ids=(1, 2, 3),
            sampling=SamplingParams(temperature=0),
            ignore_eos=True,
        )
        pin = self.choose(name, request_id).replica_id
        generate = model.options(stream=True, method_name="generate")
        events = generate.remote(pin, card, request)
        left = threading.Event()
        saying = threading.Thread(target=self._say_that_it_lasts, args=(model, request_id, left))
        saying.start()
        try:
            next(events)
            yield events
        finally:
            left.set()
            saying.join()
            events.cancel()
            model.broadcast("abort", request_id).results(timeout_s=CALL_S)

    def _say_that_it_lasts(
        self, model: DeploymentHandle, request_id: str, left: threading.Event
    ) -> None:
        """Sends the heartbeats of an ingress, without which a replica forgets the sequence."""
        while not left.wait(HEARTBEAT_S):
            model.broadcast("heartbeat", request_id).results(timeout_s=CALL_S)


ENDED = {ModelState.READY, ModelState.SLEEPING, ModelState.FAILED}


def read_card(model: DeploymentHandle) -> str:
    """The version of a model's card."""
    chunks = model.options(stream=True, method_name="card").remote()
    version: str = pickle.loads(zlib.decompress(b"".join(chunks))).version
    return version


@contextmanager
def running(sources: Sources, capacity: CapacitySettings | None = None) -> Iterator[Fleet]:
    """The router with these sources; nothing of it, nor of its models, is left afterwards."""
    deploy_router(sources, capacity)
    try:
        yield Fleet()
    finally:
        delete("router")
        delete(*read_applications())


def delete(*applications: str) -> None:
    """All at once; returns when none is left."""
    for name in applications:
        serve.delete(name, _blocking=False)
    deadline = time.monotonic() + PATIENCE_S
    while left := serve.status().applications.keys() & set(applications):
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(POLL_S)


def deploy_router(
    sources: Sources, capacity: CapacitySettings | None = None, *, wait: bool = True
) -> None:
    router = Router.bind(sources, capacity or CapacitySettings(), RoutingSettings())  # type: ignore[attr-defined]
    serve.run_many([serve.RunTarget(router, "router", None)], wait_for_applications_running=wait)


class Recorder:
    """The states of one model in their order, as `changes` tells them."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.states: list[ModelState] = [fleet.state(name)]
        self._fleet = fleet
        self._name = name
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._record)

    def __enter__(self) -> "Recorder":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _record(self) -> None:
        version = 0
        while not self._ended.is_set():
            changes = self._fleet.router.changes.remote(version, 1.0)
            version, statuses = changes.result(timeout_s=CALL_S)
            state = next(s.state for s in statuses if s.name == self._name)
            if state is not self.states[-1]:
                self.states.append(state)
