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
from deployments.engine.outputs.model_outputs import is_encoder, outputs_of
from deployments.engine.parallel.follower import SharedForward, shape_together
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
    if ranks is not None and is_encoder(model):
        raise UnsupportedModelError("ranks can't share an encoder")
    shape = cache_shape(model, limits) if ranks is None else shape_together(model, limits, ranks)
    if not is_encoder(model):
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
    parts = model, cache.storage, cache.shape.n_state_slots
    forward = Forward(*parts, adapters=adapters) if ranks is None else SharedForward(*parts, ranks)
    pipeline, outputs = default_pipeline(GrammarStrategy()), outputs_of(model)
    has_adapters = adapters is not None
    runner = Runner(forward, cache, pipeline, threads, outputs, has_adapters=has_adapters)
    return InferenceScheduler(
        runner,
        cache,
        admission,
        max_running=cache.shape.max_tasks,
        max_batch_tokens=cache.shape.max_new_tokens,
        target_itl_s=limits.target_itl_ms and limits.target_itl_ms / 1e3,
        is_async=_is_async(limits, model.device),
        checkpoint_min_step=limits.checkpoint_min_step,
        drafter=None if outputs.is_encoder else _drafter(limits, model.device),
        computes_whole_texts=outputs.is_encoder,
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
