"""A long prefix that one replica pulls from another one, beside computing it.

    python -m tests.bench.replicas.pulls FOLDER [--tokens 8000] [--runs 5]

`tests.bench.shapes` writes the model. Two replicas of one core each are on a Ray of their own; each
run has another prompt, which one computes and the other one pulls.
"""

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ray import serve
from ray.serve.handle import DeploymentHandle
from rich.console import Console
from rich.table import Table

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.limits import EngineLimits
from deployments.model.application import model_application
from deployments.model.metrics import RESTORE_SECONDS
from deployments.model.settings import MODEL_DEPLOYMENT, ModelSettings
from kv.arrivals import PrefixHolder
from tests.live.fleet import cluster, read_card

GREEDY = SamplingParams(temperature=0)


class Pulled(NamedTuple):
    """Seconds to the first token, computed and pulled; and bytes and seconds of the pull alone."""

    computed_s: float
    pulled_s: float
    n_tokens: int
    n_bytes: float
    seconds: float


class Pair:
    """Two replicas of a model."""

    def __init__(self, settings: ModelSettings) -> None:
        serve.run(model_application(settings), name=settings.application, route_prefix=None)
        self._handle: DeploymentHandle = serve.get_deployment_handle(
            MODEL_DEPLOYMENT, settings.application
        )
        while len(self.stats()) < settings.num_replicas:
            time.sleep(0.2)
        self._version = read_card(self._handle)
        self._page_size = settings.limits.page_size

    def stats(self) -> dict[str, dict[str, float]]:
        """The statistics of each replica that runs."""
        return dict(self._handle.broadcast("stats").results(timeout_s=60))

    def pulls_s(self, replica_id: str) -> float:
        """Seconds of all pulls of a replica."""
        told = self._handle.broadcast("samples").results(timeout_s=60)
        [families] = [found for labels, found in told if labels["replica"] == replica_id]
        total: float = sum(
            value
            for family in families
            for name, labels, value in family.samples
            if name == f"{RESTORE_SECONDS}_sum" and labels["tier"] == "remote"
        )
        return total

    def first_token_s(self, replica_id: str, request: GenerationRequest) -> float:
        """Seconds until a replica has said the first token."""
        generate = self._handle.options(stream=True, method_name="generate")
        began, first_s = time.perf_counter(), None
        for event in generate.remote(replica_id, self._version, request):
            assert event.error is None, event.error
            # As an ingress does, without which a replica forgets the sequence.
            self._handle.broadcast("heartbeat", request.request_id).results(timeout_s=60)
            if event.token_ids and first_s is None:
                first_s = time.perf_counter() - began
        assert first_s is not None
        return first_s

    def run(self, name: str, prompt_ids: Sequence[int]) -> Pulled:
        first, second = sorted(self.stats())
        request = GenerationRequest(
            request_id=name, prompt_ids=tuple(prompt_ids), sampling=GREEDY, max_tokens=2
        )
        computed_s = self.first_token_s(first, request)
        holder = PrefixHolder(first, len(prompt_ids) // self._page_size)
        pulling = replace(request, request_id=f"{name} again", prefix_holder=holder)
        before, pulls_s = self.stats()[second], self.pulls_s(second)
        pulled_s = self.first_token_s(second, pulling)
        after = self.stats()[second]
        n, n_bytes = (
            after[f"kv_remote_{count}"] - before[f"kv_remote_{count}"]
            for count in ("hit_tokens", "read_bytes")
        )
        return Pulled(computed_s, pulled_s, int(n), n_bytes, self.pulls_s(second) - pulls_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=256)
    given = parser.parse_args()
    limits = EngineLimits(context_length=given.tokens + 16, max_running=4, kv_gib=2)
    settings = ModelSettings(
        name="m", path=str(given.folder), num_replicas=2, num_cpus=1, limits=limits
    )
    table = Table(title=f"{given.tokens:,} tokens, two replicas of one core")
    for column in ("computed, s", "pulled, s", "ratio", "tokens pulled", "MB", "pull, ms", "GB/s"):
        table.add_column(column, justify="right")
    with cluster():
        pair = Pair(settings)
        pair.run("warm", [1] * given.tokens)
        for number in range(given.runs):
            ids = random.Random(number).choices(range(1, given.vocabulary), k=given.tokens)
            found = pair.run(f"run {number}", ids)
            table.add_row(
                f"{found.computed_s:.2f}",
                f"{found.pulled_s:.3f}",
                f"{found.pulled_s / found.computed_s:.4f}",
                f"{found.n_tokens:,}",
                f"{found.n_bytes / 1e6:.0f}",
                f"{found.seconds * 1e3:.0f}",
                f"{found.n_bytes / max(found.seconds, 1e-3) / 1e9:.2f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
