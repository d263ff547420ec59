"""Two replicas of a model on a real Ray: one pulls a prefix of the other, which then dies."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import ray
from ray import serve
from ray.serve.handle import DeploymentHandle

from deployments.contract.events import TokenEvent
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.model.application import model_application
from deployments.model.settings import MODEL_DEPLOYMENT
from kv.arrivals import PrefixHolder
from tests.checkpoints import save_large
from tests.live.fleet import CALL_S, delete, read_card, settings
from tests.live.test_deployment import eventually, ids

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[DeploymentHandle]:
    save_large(tmp_path / "large")
    model = replace(settings(tmp_path / "large", "large"), num_replicas=2)
    serve.run(model_application(model), name=model.application, route_prefix=None)
    yield serve.get_deployment_handle(MODEL_DEPLOYMENT, model.application)
    delete(model.application)


def stats(handle: DeploymentHandle) -> dict[str, dict[str, float]]:
    """The statistics of each replica, by its id."""
    return dict(handle.broadcast("stats").results(timeout_s=CALL_S))


def test_a_prefix_is_pulled_and_computed_where_its_holder_dies(pair: DeploymentHandle) -> None:
    eventually(lambda: len(stats(pair)) == 2)
    (first, second), version = sorted(stats(pair)), read_card(pair)
    holder = PrefixHolder(first, 30)

    def asked(seed: int) -> GenerationRequest:
        prompt = tuple(random.Random(seed).choices(range(256), k=490))
        sampling = SamplingParams(temperature=0)
        return GenerationRequest(
            request_id=f"r{seed}", prompt_ids=prompt, sampling=sampling, max_tokens=8
        )

    def generate(replica_id: str, request: GenerationRequest) -> Iterator[TokenEvent]:
        stream = pair.options(stream=True, method_name="generate")
        events: Iterator[TokenEvent] = stream.remote(replica_id, version, request)
        return events

    def is_pulled() -> bool:
        """A busy machine may be too slow for some."""
        request = asked(len(said))
        said.append(ids(generate(first, request)))
        again = replace(request, request_id="again", prefix_holder=holder)
        assert ids(generate(second, again)) == said[-1]
        return stats(pair)[second]["kv_remote_hit_tokens"] > 0

    said: list[list[int]] = []
    eventually(is_pulled)
    last = asked(1000)
    expected = ids(generate(first, last))
    pulling = generate(second, replace(last, request_id="last", prefix_holder=holder))
    actor = f"SERVE_REPLICA::model-large#{MODEL_DEPLOYMENT}#{first}"
    ray.kill(ray.get_actor(actor, namespace="serve"), no_restart=True)
    assert ids(pulling) == expected
