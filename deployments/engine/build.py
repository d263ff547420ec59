"""Puts an engine together: a cache as large as the limits say, and a scheduler over a model."""

import torch
from transformers import PreTrainedModel

from deployments.engine.cache_sizing import cache_shape, max_position
from deployments.engine.draft_runner import DraftRunner
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.forward import Forward
from deployments.engine.forward.fusing import fuse
from deployments.engine.limits import MAX_DRAFTED_STEP_CPU, MAX_DRAFTED_STEP_GPU, EngineLimits
from deployments.engine.loading.attention_check import find_layout
from deployments.engine.loading.draft_check import DraftModel
from deployments.engine.loading.loader import replace_attention
from deployments.engine.parallel.follower import find_layout_together, send_cache_shape
from deployments.engine.parallel.ranks import Ranks
from deployments.engine.runner import Runner
from deployments.engine.sampling.grammar_mask import GrammarStrategy
from deployments.engine.sampling.sampler import default_pipeline
from deployments.engine.scheduler.admission import Admission
from deployments.engine.scheduler.draft_policy import DraftPolicy
from deployments.engine.scheduler.drafter import Drafter, NgramDrafter
from deployments.engine.scheduler.model_drafter import READ_PART, ModelDrafter
from deployments.engine.scheduler.scheduler import InferenceScheduler
from kv.cache import KVCache


def build_cache(
    model: PreTrainedModel,
    limits: EngineLimits,
    ranks: Ranks | None,
    draft: DraftModel | None = None,
) -> KVCache:
    """The cache of a model, whose attention reads it from now on. Other ranks make theirs too. The
    layers of a draft model are behind those of the model.

    Raises ValueError for limits that can't be kept, UnsupportedModelError for a model that can't be
    served.
    """
    layout = find_layout(model) if ranks is None else find_layout_together(model, ranks)
    world_size = 1 if ranks is None else ranks.world_size
    shape = cache_shape(model, limits, world_size, layout, draft)
    if ranks is not None:
        if shape.has_states:
            raise UnsupportedModelError("ranks can't share a model whose layers keep a state")
        send_cache_shape(ranks, shape)
    for one in (model, *([] if draft is None else [draft.model])):
        replace_attention(one, shape.max_tokens)
        fuse(one)
    return KVCache(shape, dtype=model.dtype, device=model.device)


def build_scheduler(
    model: PreTrainedModel,
    cache: KVCache,
    admission: Admission,
    limits: EngineLimits,
    threads: int,
    ranks: Ranks | None,
    draft: DraftModel | None = None,
) -> InferenceScheduler:
    """A running scheduler, whose steps are computed by `threads` CPU threads.

    Raises UnsupportedModelError when the engine can't run the model.
    """
    n_state_slots = 1 if cache.states is None else cache.states.n_slots
    n_layers = len(cache.storage.layout) - (0 if draft is None else len(draft.layout))
    forward = Forward(model, cache.storage.part(0, n_layers), n_state_slots)
    runner = Runner(forward, cache, default_pipeline(GrammarStrategy()), threads, ranks)
    is_async = ranks is None and _is_async(limits, model.device)
    if draft is None:
        drafter = _drafter(limits, model.device)
    else:
        drafter = _model_drafter(model, draft, cache, limits, is_async)
    return InferenceScheduler(
        runner,
        cache,
        admission,
        max_running=cache.shape.max_tasks,
        max_batch_tokens=max(limits.max_batch_tokens, limits.max_running),
        target_itl_s=limits.target_itl_ms and limits.target_itl_ms / 1e3,
        is_async=is_async,
        checkpoint_min_step=limits.checkpoint_min_step,
        drafter=drafter,
    )


def _drafter(limits: EngineLimits, device: torch.device) -> Drafter | None:
    if not limits.draft_tokens:
        return None
    return NgramDrafter(limits.draft_tokens, _max_drafted_step(device))


def _model_drafter(
    model: PreTrainedModel,
    draft: DraftModel,
    cache: KVCache,
    limits: EngineLimits,
    is_async: bool,
) -> Drafter:
    storage, max_tokens = cache.storage, cache.shape.max_tokens
    begin = len(storage.layout) - len(draft.layout)
    runner = DraftRunner(
        Forward(draft.model, storage.part(begin, len(storage.layout))),
        cache,
        default_pipeline(),
        vocab_size=draft.vocab_size,
        model_vocab_size=model.config.get_text_config(decoder=True).vocab_size,
        max_tokens=min(max_tokens, max_position(draft.model) or max_tokens),
    )
    return ModelDrafter(
        runner,
        cache,
        DraftPolicy(is_forced=limits.draft_min > 0),
        is_async=is_async,
        max_per_task=limits.draft_tokens,
        min_per_task=limits.draft_min,
        min_prob=limits.draft_p_min,
        max_step_tokens=_max_drafted_step(model.device),
        max_read_tokens=max(limits.max_batch_tokens, READ_PART * limits.max_running),
        groups=sorted({*storage.group_of[begin:]}),
    )


def _max_drafted_step(device: torch.device) -> int:
    return MAX_DRAFTED_STEP_GPU if device.type == "cuda" else MAX_DRAFTED_STEP_CPU


def _is_async(limits: EngineLimits, device: torch.device) -> bool:
    if limits.async_scheduling is not None:
        return limits.async_scheduling
    return device.type == "cuda"  # elsewhere the host computes the step itself
