"""Models as Serve runs them: how they start, change, sleep, scale and end, on a real Ray."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from ray import serve
from ray.serve.handle import DeploymentHandle

from deployments.contract.errors import ErrorKind
from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.model_status import LoadProgress
from deployments.contract.replica_status import ReplicaReport
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.model.application import model_application
from deployments.model.settings import MODEL_DEPLOYMENT, Autoscaling, ModelSettings
from deployments.serving.deploy_errors import last_error
from tests.checkpoints import save_checkpoint
from tests.live.fleet import LIMITS, PATIENCE_S, POLL_S, delete, read_card

Deploy = Callable[[ModelSettings], DeploymentHandle]

pytestmark = pytest.mark.timeout(900)


@serve.deployment(name="Router", ray_actor_options={"num_cpus": 0})
class Listener:
    """Stands where the router does, and keeps what replicas say."""

    def __init__(self) -> None:
        self._progress: list[LoadProgress] = []
        self._reports: list[ReplicaReport] = []

    async def progress(self, application: str, progress: LoadProgress) -> None:
        self._progress.append(progress)

    async def report(self, report: ReplicaReport) -> bool:
        self._reports.append(report)
        return False

    async def heard(self) -> tuple[list[LoadProgress], list[ReplicaReport]]:
        return self._progress, self._reports


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSettings:
    path = save_checkpoint(tmp_path_factory.mktemp("tiny"))
    return ModelSettings(name="tiny", path=str(path), dtype="float32", num_cpus=0.1, limits=LIMITS)


@pytest.fixture
def deploy() -> Iterator[Deploy]:
    """Deploys models, and deletes them after the test."""
    names = set()

    def deploy(settings: ModelSettings) -> DeploymentHandle:
        names.add(settings.application)
        serve.run(model_application(settings), name=settings.application, route_prefix=None)
        return serve.get_deployment_handle(MODEL_DEPLOYMENT, settings.application)

    yield deploy
    delete(*names)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s"
        time.sleep(POLL_S)


def generate(
    handle: DeploymentHandle, version: str, n: int, request_id: str = "r"
) -> Iterator[TokenEvent]:
    request = GenerationRequest(
        request_id=request_id,
        prompt_ids=tuple(range(40, 80)),
        sampling=SamplingParams(temperature=0),
        max_tokens=n,
        ignore_eos=True,
    )
    stream: Iterator[TokenEvent] = handle.options(stream=True, method_name="generate").remote(
        None, version, request
    )
    return stream


def ids(events: Iterator[TokenEvent]) -> list[int]:
    return [token_id for event in events for token_id in event.token_ids]


def replicas(settings: ModelSettings) -> set[str]:
    """Ids of those that answer."""
    handle = serve.get_deployment_handle(MODEL_DEPLOYMENT, settings.application)
    return {labels["replica"] for labels, _ in handle.broadcast("samples").results()}


def n_running(settings: ModelSettings) -> int:
    application = serve.status().applications[settings.application]
    counts = application.deployments[MODEL_DEPLOYMENT].replica_states
    return int(sum(counts.values()))


def received(reports: list[ReplicaReport]) -> set[str]:
    return {name for report in reports for name in report.received}


def test_a_model_that_can_not_be_loaded_says_why(tiny: ModelSettings) -> None:
    settings = replace(tiny, name="broken", sleep_weights="host")
    with pytest.raises(RuntimeError):
        serve.run(model_application(settings), name=settings.application, route_prefix=None)
    status = serve.status().applications[settings.application]
    message = status.deployments[MODEL_DEPLOYMENT].message
    serve.delete(settings.application)
    assert last_error(message).startswith("sleep_weights = host needs num_gpus")


def test_more_replicas_leave_alone_the_one_there_is(tiny: ModelSettings, deploy: Deploy) -> None:
    deploy(tiny)
    first = replicas(tiny)
    deploy(replace(tiny, num_replicas=2, stop_timeout_s=5.0))
    eventually(lambda: len(replicas(tiny)) == 2)
    assert len(first) == 1
    assert first < replicas(tiny)


def test_a_deleted_model_ends_the_streams_that_it_has(tiny: ModelSettings, deploy: Deploy) -> None:
    settings = replace(tiny, stop_timeout_s=float(PATIENCE_S))
    handle = deploy(settings)
    version = read_card(handle)
    (of_another_card,) = generate(handle, "another", 300)
    assert of_another_card.error is not None
    assert of_another_card.error.kind is ErrorKind.MODEL_REPLACED
    undisturbed = ids(generate(handle, version, 300))
    stream = generate(handle, version, 300)
    begun = next(stream)
    serve.delete(settings.application, _blocking=False)
    assert [*begun.token_ids, *ids(stream)] == undisturbed
    assert len(undisturbed) == 300


def test_replicas_go_when_nobody_asks_and_come_when_somebody_does(
    tiny: ModelSettings, deploy: Deploy
) -> None:
    scaling = Autoscaling(min_replicas=0, max_replicas=2, upscale_delay_s=0, downscale_delay_s=1)
    settings = replace(tiny, autoscaling=scaling)
    handle = deploy(settings)
    version = read_card(handle)
    before = ids(generate(handle, version, 20))
    eventually(lambda: n_running(settings) == 0)
    assert ids(generate(handle, version, 20)) == before


def test_a_replica_sleeps_and_wakes_and_the_router_hears_of_it(
    tiny: ModelSettings, deploy: Deploy
) -> None:
    listener = serve.run(Listener.bind(), name="router", route_prefix=None)  # type: ignore[attr-defined]
    handle = deploy(replace(tiny, sleep_idle_s=1.0))

    def heard() -> tuple[list[LoadProgress], list[ReplicaReport]]:
        answer: tuple[list[LoadProgress], list[ReplicaReport]] = listener.heard.remote().result()
        return answer

    def sleeps() -> bool:
        _, stats = handle.stats.remote().result()
        return bool(stats["sleeping"])

    version = read_card(handle)
    before = ids(generate(handle, version, 40))
    eventually(sleeps)
    eventually(lambda: heard()[1][-1].sleeping)
    assert handle.busy.remote().result() == 0
    assert [event.error is None for event in generate(handle, "another", 40, "refused")] == [False]
    aborted = generate(handle, version, 40, "aborted")
    handle.abort.remote("aborted").result()
    assert ids(generate(handle, version, 40, "again")) == before
    assert [event.finish_reason for event in aborted] == [FinishReason.ABORT]
    eventually(lambda: "again" in received(heard()[1]))
    # Before, while and after it slept.
    eventually(lambda: len({report.epoch for report in heard()[1]}) >= 3)

    again = replace(tiny, name="again")

    def is_told_of_a_load() -> bool:
        """Has another one load where a load was over before a word of it was on its way."""
        if not heard()[0]:
            delete(again.application)
            deploy(again)
        return bool(heard()[0])

    eventually(is_told_of_a_load)
    progress, reports = heard()
    serve.delete("router")
    assert {told.stage for told in progress} <= {"weights", "engine"}
    assert {"r", "refused"} <= received(reports)
