"""Builds what keeps pages of an engine's cache in files: a tier on a disk, and saved slots."""

import os
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from deployments.engine.cache_sizing import MIB
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.needs.kv_tier import KvTierNeed
from deployments.engine.needs.need import Need
from deployments.engine.needs.slots.slot_need import SlotNeed
from kv.cache import KVCache
from kv.tiers.disk import DiskTier
from kv.tiers.folder import BundleFolder
from kv.tiers.namespace import make_namespace, processor
from kv.tiers.slot_folder import SlotFolder


def build_tiers(
    loaded: LoadedModel, cache: KVCache, limits: EngineLimits, identity: Sequence[str]
) -> Sequence[Need]:
    """The needs of tiers that the limits ask for. `identity` tells the model's weights, and those
    of what drafts for it, from all others.

    Raises UnsupportedModelError for a model whose prefixes can't be kept so.
    """
    if limits.cache_disk is None:
        return ()
    if loaded.device.type != "cpu":
        raise UnsupportedModelError("cache-disk: prefixes of a GPU are not kept on a disk yet")
    if cache.states is not None:
        raise UnsupportedModelError("cache-disk: a model whose layers keep states has none yet")
    namespace = _namespace(loaded, cache, identity)
    path = Path(os.path.expanduser(limits.cache_disk))
    folder = BundleFolder(path, namespace, limits.cache_disk_mib * MIB)
    rate = limits.cache_disk_write_mib * MIB
    disk = DiskTier(cache.pool.prefix_cache, cache.storage, folder, rate)
    return (KvTierNeed(cache, disk),)


def build_slots(
    loaded: LoadedModel, cache: KVCache, limits: EngineLimits, identity: Sequence[str]
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
    namespace, page_size = _namespace(loaded, cache, identity), cache.shape.page_size
    path = Path(os.path.expanduser(limits.slot_save_path))
    folder = SlotFolder(path, namespace, page_size, limits.slot_save_mib * MIB)
    return SlotNeed(cache, folder, takes_adapters=limits.max_loras > 0)


def _namespace(loaded: LoadedModel, cache: KVCache, identity: Sequence[str]) -> bytes:
    computed_by = [_version("manta"), torch.__version__, processor(), str(loaded.dtype)]
    return make_namespace(cache.storage, identity, computed_by)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from its sources
        return ""
