"""Puts an engine together: a cache as large as the limits say, and a scheduler over a model."""

from collections.abc import Callable, Sequence

from deployments.engine.build_drafts import DraftParts, launches_ahead
from deployments.engine.cache_sizing import MIB, cache_shape
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.adapters.slots import AdapterSlots
from deployments.engine.forward.cuda_graphs import ALONE
from deployments.engine.forward.execution import Execution
from deployments.engine.forward.forward import make_forward
from deployments.engine.forward.fused.fusing import fuse
from deployments.engine.forward.linear import pack_linears
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.attention_check import find_decoding
from deployments.engine.loading.checks import check_supported
from deployments.engine.loading.draft_check import CheckedDraft
from deployments.engine.loading.encoder_check import find_encoder_way
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import replace_attention
from deployments.engine.media.encoder import MediaEncoder
from deployments.engine.needs.adapter_loader import AdapterLoader
from deployments.engine.needs.adapters import AdapterNeed
from deployments.engine.needs.grammar.grammar_need import GrammarNeed
from deployments.engine.needs.media import MediaNeed
from deployments.engine.needs.need import Need
from deployments.engine.needs.speech import SpeechNeed
from deployments.engine.needs.states import StateNeed
from deployments.engine.parallel.follower import (
    SharedForward,
    find_decoding_together,
    shape_together,
)
from deployments.engine.parallel.ranks import Ranks
from deployments.engine.runner import Runner
from deployments.engine.sampling.constraints import ConstraintStrategy
from deployments.engine.sampling.sampler import default_pipeline
from deployments.engine.scheduler.admission import Admission
from deployments.engine.scheduler.scheduler import InferenceScheduler
from kv.cache import KVCache


def find_execution(loaded: LoadedModel, ranks: Ranks | None = None) -> Execution:
    """Returns how the engine computes a model. Other ranks find out how they do.

    Raises UnsupportedModelError for a model that can't be served.
    """
    check_supported(loaded.model.config)
    if loaded.is_encoder:
        return Execution(encoder=find_encoder_way(loaded.model))
    if ranks is not None:
        return find_decoding_together(loaded.model, ranks)
    return find_decoding(loaded.model)


def build_cache(
    loaded: LoadedModel,
    execution: Execution,
    limits: EngineLimits,
    ranks: Ranks | None,
    draft: CheckedDraft | None = None,
) -> KVCache:
    """The cache of a model, whose attention reads it from now on. Other ranks make theirs too. The
    layers of what drafts are behind those of the model.

    Raises ValueError for limits that can't be kept, UnsupportedModelError for a model that can't be
    served.
    """
    if ranks is None:
        shape = cache_shape(loaded, execution, limits, draft=draft)
    else:
        shape = shape_together(loaded, execution, limits, ranks)
    if execution.encoder is None:
        replace_attention(loaded.model, execution, shape.max_tokens)
        fuse(loaded.model)
        if draft is not None:
            draft.prepare(shape.max_tokens)
        if loaded.speech is not None:
            pack_linears(loaded.speech)
    return KVCache(shape, dtype=loaded.dtype, device=loaded.device)


def build_scheduler(
    loaded: LoadedModel,
    execution: Execution,
    cache: KVCache,
    admission: Admission,
    limits: EngineLimits,
    threads: int,
    ranks: Ranks | None,
    drafts: DraftParts,
    adapters: AdapterSlots | None = None,
    needs: Sequence[Need] = (),
) -> InferenceScheduler:
    """A running scheduler, whose steps are computed by `threads` CPU threads. Other layers than the
    model's, which are the first ones of the cache, are those of `drafts`.

    Raises UnsupportedModelError when the engine can't run the model.
    """
    storage = cache.storage.part(0, len(execution.layout))
    peers = ALONE if ranks is None else ranks
    parts = loaded.model, execution, storage, cache.shape.n_state_slots, peers, adapters
    own = make_forward(*parts)
    if cache.states is not None and limits.cache_disk is not None:
        cache.states.memory = own.host_states(loaded.model)
    forward = drafts.around(own)
    if ranks is not None:
        forward = SharedForward(forward, storage, ranks)
    pipeline, outputs = default_pipeline(ConstraintStrategy()), loaded.outputs_by(execution)
    runner = Runner(forward, cache, pipeline, threads, outputs, needs)
    return InferenceScheduler(
        runner,
        cache,
        admission,
        needs,
        drafter=drafts.drafter,
        target_itl_s=limits.target_itl_ms and limits.target_itl_ms / 1e3,
        is_async=launches_ahead(limits, loaded.device),
    )


def list_needs(
    loaded: LoadedModel,
    adapters: AdapterSlots | None,
    limits: EngineLimits,
    ranks: Ranks | None,
    cache: KVCache,
    tokenizer_json: Callable[[], str] | None,
    eos_token_ids: frozenset[int],
) -> Sequence[Need]:
    """Lists what tasks of this engine may wait for, and nothing that none of them can have."""
    needs: list[Need] = []
    if not loaded.is_encoder:
        needs.append(GrammarNeed(tokenizer_json, loaded.vocab_size, eos_token_ids))
    if cache.states is not None:
        needs.append(StateNeed(cache, limits.checkpoint_min_step))
    if adapters is not None:
        loader = AdapterLoader(adapters.misfit, int(limits.lora_cache_mib * MIB))
        needs.append(AdapterNeed(adapters, loader))
    if (encoder := usable_encoder(loaded, ranks)) is not None:
        max_ids, cache_bytes = cache.shape.max_new_tokens, limits.media_cache_mib * MIB
        needs.append(MediaNeed(encoder, max_ids, cache_bytes))
    if loaded.speech is not None:
        needs.append(SpeechNeed(loaded.model, loaded.speech, cache.shape.max_tasks))
    return needs


def usable_encoder(loaded: LoadedModel, ranks: Ranks | None) -> MediaEncoder | None:
    """Returns the encoder of a model's media. None: the model is served for texts alone."""
    return None if ranks is not None or loaded.is_encoder else loaded.media


def adapter_slots(
    loaded: LoadedModel, execution: Execution, limits: EngineLimits
) -> AdapterSlots | None:
    """Raises UnsupportedModelError for a model whose rows can't have adapters of their own."""
    if not limits.max_loras:
        return None
    if execution.by_rows is not None:
        kind = loaded.model.config.model_type
        raise UnsupportedModelError(
            f"max_loras: {kind} is computed row by row, and takes no adapter"
        )
    return AdapterSlots(loaded.model, limits.max_loras, limits.max_lora_rank, loaded.own_name)
