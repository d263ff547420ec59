"""Puts an engine together: a cache as large as the limits say, and a scheduler over a model."""

import torch
from transformers import PreTrainedModel

from deployments.engine.cache_sizing import MIB, cache_shape
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.adapters.slots import AdapterSlots
from deployments.engine.forward.forward import Forward
from deployments.engine.forward.fusing import fuse
from deployments.engine.limits import MAX_DRAFTED_STEP_CPU, MAX_DRAFTED_STEP_GPU, EngineLimits
from deployments.engine.loading.adapter_loader import AdapterLoader
from deployments.engine.loading.loader import replace_attention
from deployments.engine.parallel.follower import (
    SharedForward,
    find_layout_together,
    send_cache_shape,
)
from deployments.engine.parallel.ranks import Ranks
from deployments.engine.runner import Runner
from deployments.engine.sampling.grammar_mask import GrammarStrategy
from deployments.engine.sampling.sampler import default_pipeline
from deployments.engine.scheduler.admission import Admission
from deployments.engine.scheduler.drafter import Drafter
from deployments.engine.scheduler.scheduler import InferenceScheduler
from kv.cache import KVCache


def build_cache(model: PreTrainedModel, limits: EngineLimits, ranks: Ranks | None) -> KVCache:
    """The cache of a model, whose attention reads it from now on. Other ranks make theirs too.

    Raises ValueError for limits that can't be kept, UnsupportedModelError for a model that can't be
    served.
    """
    layout = None if ranks is None else find_layout_together(model, ranks)
    shape = cache_shape(model, limits, 1 if ranks is None else ranks.world_size, layout)
    if ranks is not None:
        if shape.has_states:
            raise UnsupportedModelError("ranks can't share a model whose layers keep a state")
        send_cache_shape(ranks, shape)
    replace_attention(model, shape.max_tokens)
    fuse(model)
    return KVCache(shape, dtype=model.dtype, device=model.device)


def build_scheduler(
    model: PreTrainedModel,
    cache: KVCache,
    admission: Admission,
    limits: EngineLimits,
    threads: int,
    ranks: Ranks | None,
) -> InferenceScheduler:
    """A running scheduler, whose steps are computed by `threads` CPU threads.

    Raises UnsupportedModelError when the engine can't run the model.
    """
    adapters, loader = _adapters(model, limits, ranks)
    n_state_slots = 1 if cache.states is None else cache.states.n_slots
    forward = (
        Forward(model, cache.storage, n_state_slots, adapters=adapters)
        if ranks is None
        else SharedForward(model, cache.storage, n_state_slots, ranks)
    )
    pipeline = default_pipeline(GrammarStrategy())
    runner = Runner(forward, cache, pipeline, threads, has_adapters=adapters is not None)
    return InferenceScheduler(
        runner,
        cache,
        admission,
        max_running=cache.shape.max_tasks,
        max_batch_tokens=max(limits.max_batch_tokens, limits.max_running),
        target_itl_s=limits.target_itl_ms and limits.target_itl_ms / 1e3,
        is_async=_is_async(limits, model.device),
        checkpoint_min_step=limits.checkpoint_min_step,
        drafter=_drafter(limits, model.device),
        adapters=adapters,
        adapter_loader=loader,
    )


def _adapters(
    model: PreTrainedModel, limits: EngineLimits, ranks: Ranks | None
) -> tuple[AdapterSlots | None, AdapterLoader | None]:
    """Raises UnsupportedModelError for a model whose rows can't have adapters of their own."""
    if not limits.max_loras:
        return None, None
    if ranks is not None:
        raise UnsupportedModelError("max_loras: ranks that share a model take no adapters")
    slots = AdapterSlots(model, limits.max_loras, limits.max_lora_rank)
    return slots, AdapterLoader(slots.misfit, int(limits.lora_cache_mib * MIB))


def _drafter(limits: EngineLimits, device: torch.device) -> Drafter | None:
    if not limits.draft_tokens:
        return None
    is_gpu = device.type == "cuda"
    return Drafter(limits.draft_tokens, MAX_DRAFTED_STEP_GPU if is_gpu else MAX_DRAFTED_STEP_CPU)


def _is_async(limits: EngineLimits, device: torch.device) -> bool:
    if limits.async_scheduling is not None:
        return limits.async_scheduling
    return device.type == "cuda"  # elsewhere the host computes the step itself
