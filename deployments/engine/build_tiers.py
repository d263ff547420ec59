"""Builds what an engine's cache has beside its memory: tiers in which prefixes outlive it, pages of
other replicas, and saved slots.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from deployments.engine.cache_sizing import MIB
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.execution import Execution
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.fingerprint import WeightsIdentity
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.needs.kv_tier import KvTierNeed
from deployments.engine.needs.need import Need
from deployments.engine.needs.remote_pages import PullPages, RemotePages
from deployments.engine.needs.slots.slot_need import SlotNeed
from kv.cache import KVCache
from kv.tiers.disk import DiskTier
from kv.tiers.folder import BundleFolder
from kv.tiers.namespace import make_namespace, processor
from kv.tiers.parcel import PageReader
from kv.tiers.slot_folder import SlotFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class TierParts:
    """needs: of tasks whose pages lie elsewhere. pages: those of the cache, for other replicas;
    None: they get none."""

    needs: Sequence[Need] = ()
    pages: PageReader | None = None


def build_tiers(
    loaded: LoadedModel,
    execution: Execution,
    cache: KVCache,
    limits: EngineLimits,
    identity: WeightsIdentity,
    pull: PullPages | None,
) -> TierParts:
    """Builds what the limits ask for. `pull` pulls pages from other replicas; None: there are none.
    The memory of states is made known to the cache later.

    Raises UnsupportedModelError for a model whose prefixes can't be kept so, ValueError for limits
    that leave none.
    """
    disk = _disk_needs(loaded, execution, cache, limits, identity)
    if pull is None or limits.pull_prefixes is False or not _can_pull(loaded, cache, limits):
        return TierParts(needs=disk)
    namespace = make_namespace(cache.storage, identity.weights, _computed_by(loaded))
    remote = KvTierNeed(cache, RemotePages(cache.storage, namespace, pull))
    pages = PageReader(namespace, cache.pool.prefix_cache, cache.storage)
    return TierParts(needs=(*disk, remote), pages=pages)


def _can_pull(loaded: LoadedModel, cache: KVCache, limits: EngineLimits) -> bool:
    """Raises UnsupportedModelError where it can't and the limits ask for it."""
    on_gpu, has_states = loaded.device.type != "cpu", cache.states is not None
    if on_gpu and limits.pull_prefixes:
        raise UnsupportedModelError("pull-prefixes: prefixes of a GPU are not sent yet")
    if has_states and limits.pull_prefixes:
        raise UnsupportedModelError(
            "pull-prefixes: a model whose layers keep states sends none yet"
        )
    return not (on_gpu or has_states or loaded.is_encoder or loaded.speech is not None)


def _disk_needs(
    loaded: LoadedModel,
    execution: Execution,
    cache: KVCache,
    limits: EngineLimits,
    identity: WeightsIdentity,
) -> Sequence[Need]:
    if limits.cache_disk is None:
        return ()
    if loaded.device.type != "cpu":
        raise UnsupportedModelError("cache-disk: prefixes of a GPU are not kept on a disk yet")
    _check_states(loaded, execution, cache)
    namespace = _namespace_of_files(loaded, cache, identity)
    path = Path(os.path.expanduser(limits.cache_disk))
    folder = BundleFolder(path, namespace, limits.cache_disk_mib * MIB)
    rate = limits.cache_disk_write_mib * MIB
    disk = cache.tier = DiskTier(
        cache.pool.prefix_cache,
        cache.storage,
        folder,
        rate,
        states=cache.states,
        state_bytes=_state_bytes(cache),
    )
    return (KvTierNeed(cache, disk),)


def build_slots(
    loaded: LoadedModel, cache: KVCache, limits: EngineLimits, identity: WeightsIdentity
) -> SlotNeed | None:
    """The slots that clients save, where the limits have a folder for them.

    Raises UnsupportedModelError for a model whose slots can't be saved.
    """
    if limits.slot_save_path is None:
        return None
    if loaded.device.type != "cpu":
        raise UnsupportedModelError("slot-save-path: slots of a GPU are not saved yet")
    if cache.states is not None:
        raise UnsupportedModelError("slot-save-path: layers that keep states are not saved yet")
    namespace, page_size = _namespace_of_files(loaded, cache, identity), cache.shape.page_size
    path = Path(os.path.expanduser(limits.slot_save_path))
    folder = SlotFolder(path, namespace, page_size, limits.slot_save_mib * MIB)
    return SlotNeed(cache, folder, takes_adapters=limits.max_loras > 0)


def _namespace_of_files(loaded: LoadedModel, cache: KVCache, identity: WeightsIdentity) -> bytes:
    weights = *identity.weights, *identity.files
    computed_by = *_computed_by(loaded), str(_state_bytes(cache))
    return make_namespace(cache.storage, weights, computed_by)


def _computed_by(loaded: LoadedModel) -> Sequence[str]:
    versions = [_version(package) for package in ("manta", "transformers")]
    return *versions, torch.__version__, processor(), str(loaded.dtype)


def _state_bytes(cache: KVCache) -> int:
    return cache.shape.state_bytes if cache.states is not None else 0


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
