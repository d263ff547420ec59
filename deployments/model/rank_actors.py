"""Starts the further ranks of a replica: one actor in each further bundle of its placement group.

They live and die with it: rank 0 is the replica's own process and the only one that Serve knows.
"""

import logging
import os
import threading
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from deployments.model.settings import ModelSettings

if (
    TYPE_CHECKING
):  # the modules import torch, which reads the environment that `RankActor` sets first
    from deployments.engine.parallel.ranks import Ranks

log = logging.getLogger("ray.serve")

# For ranks that have imported all they need, and not loaded yet.
JOIN_TIMEOUT_S = 60.0


def start_ranks(settings: ModelSettings) -> "Ranks":
    """Rank 0's end of a new group of `settings.tensor_parallel` ranks. The others load their shares
    and then follow. It blocks: call it in the replica, off the event loop.

    Next: `load_weights(settings, ranks)` for its share, then `EngineCore(..., ranks=ranks)`.
    Its `shutdown` ends the others too; afterwards a new group may be started. If there is no
    engine to shut down, `ranks.stop()`. A rank that dies fails the engine's health check at once.

    Raises ValueError or UnsupportedModelError when so many ranks can't share the model or have no
    placement group, RayError when one can't be started, RanksLostError when one does not come.
    """
    import torch

    from deployments.engine.loading.loader import model_files
    from deployments.engine.parallel.ranks import Ranks, open_store
    from deployments.engine.parallel.sharding import check_shardable

    size = settings.tensor_parallel
    check_shardable(model_files(settings.path).config(), size)
    workers = [_start(settings, rank) for rank in range(1, size)]
    ray.get([worker.prepare.remote() for worker in workers])
    host = ray.util.get_node_ip_address()
    store = open_store(host, size, JOIN_TIMEOUT_S)
    runs = [worker.run.remote(host, store.port) for worker in workers]
    ranks = Ranks(store, 0, size, torch.device("cuda" if settings.num_gpus else "cpu"))
    threading.Thread(target=_watch, args=(ranks, workers, runs), daemon=True).start()
    return ranks


class RankActor:
    """The process of one further rank."""

    def __init__(self, settings: ModelSettings, rank: int, wait_policy: str | None) -> None:
        if wait_policy is not None:
            os.environ["OMP_WAIT_POLICY"] = wait_policy
        self._settings = settings
        self._rank = rank

    def prepare(self) -> int:
        """Imports everything, which takes long; returns its process id."""
        import deployments.engine.parallel.follower
        import deployments.model.weights  # noqa: F401

        return os.getpid()

    def run(self, host: str, port: int) -> None:
        """Returns when rank 0 stops the group, and ends the process when anything else does."""
        import torch

        from deployments.engine.parallel.follower import follow
        from deployments.engine.parallel.ranks import Ranks, connect_store
        from deployments.model.weights import load_weights

        size = self._settings.tensor_parallel
        device = torch.device("cuda" if self._settings.num_gpus else "cpu")
        ranks = Ranks(connect_store(host, port, size, JOIN_TIMEOUT_S), self._rank, size, device)
        try:
            follow(load_weights(self._settings, ranks).model, ranks)
        except BaseException as error:
            log.exception("rank %d of %s cannot go on", self._rank, self._settings.name)
            ranks.report_failure(error)
            os._exit(1)  # the others may wait for this rank: a closed connection ends that


def _start(settings: ModelSettings, rank: int) -> Any:
    group: PlacementGroup | None = ray.util.get_current_placement_group()
    if group is None or group.bundle_count < settings.tensor_parallel:
        raise ValueError(f"{settings.tensor_parallel} ranks need as many bundles in one group")
    bundle = group.bundle_specs[rank]
    worker = ray.remote(RankActor).options(
        num_cpus=bundle.get("CPU", 0),
        num_gpus=bundle.get("GPU", 0),
        scheduling_strategy=PlacementGroupSchedulingStrategy(
            placement_group=group, placement_group_bundle_index=rank
        ),
    )
    return worker.remote(settings, rank, os.environ.get("OMP_WAIT_POLICY"))


def _watch(ranks: "Ranks", workers: list[Any], runs: list[Any]) -> None:
    """Waits until a rank ends, then ends all. Holds the actors, which Ray would end otherwise."""
    try:
        ended, _ = ray.wait(runs, num_returns=1)
        ray.get(ended)
    except RayError as error:
        ranks.mark_lost(str(error))
        log.error("a rank of the model has ended: %s", ranks.lost_reason)
    for worker in workers:
        ray.kill(worker)
