"""Builds the tiers of an engine's cache: slower memory in which prefixes outlive it."""

import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from deployments.engine.cache_sizing import MIB
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.execution import Execution
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.needs.kv_tier import KvTierNeed
from deployments.engine.needs.need import Need
from kv.cache import KVCache
from kv.tiers.disk import DiskTier
from kv.tiers.folder import BundleFolder
from kv.tiers.namespace import make_namespace, processor


def build_tiers(
    loaded: LoadedModel,
    execution: Execution,
    cache: KVCache,
    limits: EngineLimits,
    identity: Sequence[str],
) -> Sequence[Need]:
    """The needs of tiers that the limits ask for. `identity` tells the model's weights, and those
    of what drafts for it, from all others. The memory of states is made known to the cache later.

    Raises UnsupportedModelError for a model whose prefixes can't be kept so, ValueError for limits
    that leave none.
    """
    if limits.cache_disk is None:
        return ()
    if loaded.device.type != "cpu":
        raise UnsupportedModelError("cache-disk: prefixes of a GPU are not kept on a disk yet")
    _check_states(loaded, execution, cache)
    versions = [_version(package) for package in ("manta", "transformers")]
    computed_by = [*versions, torch.__version__, processor(), str(loaded.dtype)]
    state_bytes = cache.shape.state_bytes if cache.states is not None else 0
    namespace = make_namespace(cache.storage, identity, [*computed_by, str(state_bytes)])
    path = Path(os.path.expanduser(limits.cache_disk))
    folder = BundleFolder(path, namespace, limits.cache_disk_mib * MIB)
    rate = limits.cache_disk_write_mib * MIB
    disk = DiskTier(
        cache.pool.prefix_cache,
        cache.storage,
        folder,
        rate,
        states=cache.states,
        state_bytes=state_bytes,
    )
    return (KvTierNeed(cache, disk),)


def _check_states(loaded: LoadedModel, execution: Execution, cache: KVCache) -> None:
    if cache.states is None:
        return
    if execution.by_rows is not None:
        kind = loaded.model.config.model_type
        raise UnsupportedModelError(
            f"cache-disk: {kind} is computed row by row, and its states are not kept on a disk"
        )
    if not cache.shape.max_checkpoints:
        raise ValueError(
            "cache-disk: prefixes of this model need states, of which ctx-checkpoints and "
            "ctx-checkpoints-mib leave none"
        )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from its sources
        return ""
