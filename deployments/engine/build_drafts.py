"""Builds what drafts for a model: n-grams, a draft model or a draft head."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from deployments.engine.cache_sizing import max_position
from deployments.engine.draft_runner import DraftRunner, GuessRunner, HeadRunner
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.execution import Execution
from deployments.engine.forward.forward import Forward, make_forward
from deployments.engine.limits import EngineLimits, max_drafted_step
from deployments.engine.loading.draft_check import CheckedDraft, DraftModel
from deployments.engine.loading.draft_heads.draft_head import DraftHead
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.needs.draft_head import DraftHeadNeed
from deployments.engine.needs.need import Need
from deployments.engine.sampling.sampler import default_pipeline
from deployments.engine.scheduler.draft_policy import DraftPolicy
from deployments.engine.scheduler.drafter import NO_DRAFTER, Drafter, NgramDrafter
from deployments.engine.scheduler.guessing_drafter import READ_PART, GuessingDrafter, WhatIsRead
from deployments.engine.scheduler.head_drafter import HeadDrafter, ReadInSteps
from deployments.engine.scheduler.model_drafter import ModelDrafter, ReadPages
from kv.cache import KVCache


def _as_it_is(forward: Forward) -> Forward:
    return forward


@dataclass(frozen=True, slots=True)
class DraftParts:
    """The drafter of a model, and what goes with it.

    around: makes the model's forward pass one in which a head reads each step.
    """

    drafter: Drafter
    needs: Sequence[Need] = ()
    around: Callable[[Forward], Forward] = _as_it_is


def build_drafts(
    loaded: LoadedModel,
    execution: Execution,
    draft: CheckedDraft | None,
    cache: KVCache,
    limits: EngineLimits,
) -> DraftParts:
    """Raises UnsupportedModelError for a draft head of a model whose layers can't be tapped."""
    if draft is None:
        return DraftParts(_ngram_drafter(limits, loaded, cache))
    if isinstance(draft, DraftModel):
        return DraftParts(_model_drafter(loaded, draft, cache, limits))
    if execution.by_rows is not None:
        raise UnsupportedModelError(
            f"{loaded.model.config.model_type} is computed row by row, and no draft head reads its "
            "states"
        )
    return _head_parts(loaded, draft, cache, limits)


def launches_ahead(limits: EngineLimits, device: torch.device) -> bool:
    """Whether a step is launched before the tokens of the last one are known."""
    if limits.async_scheduling is not None:
        return limits.async_scheduling
    return device.type == "cuda"  # elsewhere the host computes the step itself


def _ngram_drafter(limits: EngineLimits, loaded: LoadedModel, cache: KVCache) -> Drafter:
    if loaded.is_encoder or not limits.draft_tokens:
        return NO_DRAFTER
    return NgramDrafter(limits.draft_tokens, _max_drafted_step(cache))


def _model_drafter(
    loaded: LoadedModel, draft: DraftModel, cache: KVCache, limits: EngineLimits
) -> Drafter:
    storage, max_tokens = cache.storage, cache.shape.max_tokens
    begin = len(storage.layout) - len(draft.layout)
    model, execution = draft.loaded.model, draft.execution
    runner = DraftRunner(
        make_forward(model, execution, storage.part(begin, len(storage.layout))),
        cache,
        default_pipeline(),
        vocab_size=draft.loaded.vocab_size,
        model_vocab_size=loaded.vocab_size,
        max_tokens=min(max_tokens, max_position(model, execution) or max_tokens),
    )
    read = ReadPages(cache, sorted({*storage.group_of[begin:]}))
    return _guessing_drafter(ModelDrafter, runner, read, loaded, cache, limits)


def _head_parts(
    loaded: LoadedModel, draft: DraftHead, cache: KVCache, limits: EngineLimits
) -> DraftParts:
    parts = draft.parts(loaded, cache.storage, limits)
    carried = parts.carried
    runner = HeadRunner(parts.forward, carried, cache, default_pipeline(), loaded.vocab_size)
    drafter = _guessing_drafter(HeadDrafter, runner, ReadInSteps(carried), loaded, cache, limits)
    return DraftParts(drafter, [DraftHeadNeed(carried)], parts.around)


def _guessing_drafter(
    kind: type[GuessingDrafter],
    runner: GuessRunner,
    read: WhatIsRead,
    loaded: LoadedModel,
    cache: KVCache,
    limits: EngineLimits,
) -> Drafter:
    return kind(
        runner,
        cache,
        DraftPolicy(is_forced=limits.draft_min > 0),
        read,
        is_async=launches_ahead(limits, loaded.device),
        max_per_task=limits.draft_tokens,
        min_per_task=limits.draft_min,
        min_prob=limits.draft_p_min,
        max_step_tokens=_max_drafted_step(cache),
        max_read_tokens=max(limits.max_batch_tokens, READ_PART * limits.max_running),
    )


def _max_drafted_step(cache: KVCache) -> int:
    """Tokens of a step with drafts: no more of these than have states."""
    most = max_drafted_step(cache.storage.device.type)
    return min(most, 1 + cache.shape.max_drafted) if cache.shape.has_states else most
