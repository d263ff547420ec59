"""Computes the size of an engine's cache from its limits and from the free memory of a device.

If the limits give no size and the device is a GPU, one step of the largest batch is run to measure
the memory that computing needs.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from transformers import PreTrainedModel

from deployments.engine.attention.gpu import MAX_SMALL_CHUNK
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.adapters.slots import adapter_bytes
from deployments.engine.forward.cross_attention import (
    cross_attention_bytes,
    encode,
    longest_features,
)
from deployments.engine.forward.execution import Execution
from deployments.engine.forward.forward import make_forward
from deployments.engine.forward.fused.fusing import fuse
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.forward.recurrent import state_bytes
from deployments.engine.limits import CPU_KV_GIB, EngineLimits, max_drafted, max_sampled_tokens
from deployments.engine.loading.configs.context import longest_context
from deployments.engine.loading.draft_check import CheckedDraft, DraftModel
from deployments.engine.loading.draft_heads.draft_head import DraftHead
from deployments.engine.loading.encoder_check import longest_prompt
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import replace_attention
from deployments.engine.media.encoder import STEPS_AHEAD
from kv.layout import NOTHING, Layout, within
from kv.shape import CacheShape
from kv.states import NO_STATE, SLOTS_PER_TASK

MIB, GIB = 1 << 20, 1 << 30
FP8_CAPABILITY = (8, 9)
STATES_CONTEXT = 1 << 15  # tokens, of a model that attends nowhere, unless it is set
SOUNDS_PER_TASK = 2  # its own, and that of a request that comes next
CPU_SOUND_TASKS = 4  # that there is room for, whatever their size, unless `kv_gib` is set
# The part of the free memory that may be used. The rest is for other processes on the device, whose
# use may grow, and for the blocks in which memory is allocated.
USABLE_FREE_FRACTION = 0.9
# Estimated activations of one token at the peak of a layer, as multiples of hidden_size and of
# intermediate_size. Ranks use it: they compute only together, so one can't measure alone.
HIDDEN_SIZES_PER_TOKEN, INTERMEDIATE_SIZES_PER_TOKEN = 8, 3


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of a device around one step with a cache of negligible size. All fields are in bytes.

    total: of the device.
    free: of the device after the step, when the allocator keeps nothing for reuse.
    weights: allocated by this process after the step, when only its weights are left.
    peak: the most that this process had allocated during the step.
    graphs: that CUDA graphs of decodes will take.
    """

    total: int
    free: int
    weights: int
    peak: int
    graphs: int = 0


def kv_budget(memory: DeviceMemory, utilization: float) -> int:
    """Bytes for pages. With weights, activations and CUDA graphs they take at most `utilization` of
    the device.

    utilization: a part of the device's total memory, in 0..1.
    """
    activations = memory.peak - memory.weights + memory.graphs
    within_utilization = int(memory.total * utilization) - memory.weights - activations
    within_free = int(memory.free * USABLE_FREE_FRACTION) - activations
    return max(0, min(within_utilization, within_free))


def cache_shape(
    loaded: LoadedModel,
    execution: Execution,
    limits: EngineLimits,
    world_size: int = 1,
    draft: CheckedDraft | None = None,
) -> CacheShape:
    """The shape of the cache of each of `world_size` ranks. The layers of what drafts are behind
    those of the model.

    The limits' memory is for one rank, too. On a GPU the model may be fused and its attention
    replaced to measure its memory.

    Raises ValueError for limits that the model or the device can't keep, UnsupportedModelError for
    a model that can't be served.
    """
    if execution.encoder is not None:
        return encoder_shape(loaded.model, limits)
    shape = _page_shape(loaded.model, execution, limits, () if draft is None else draft.layout)
    if shape.is_fp8:
        _check_fp8(loaded.model, execution)
    if shape.has_states and loaded.device.type != "cuda":
        shape = _with_states_within(shape, int((limits.kv_gib or CPU_KV_GIB) * GIB))
    if limits.n_pages:
        shape = replace(shape, n_pages=limits.n_pages)
    else:
        shape = _sized(loaded, execution, limits, world_size, shape, draft)
    longest = shape.longest(shape.n_pages)
    if limits.context_length and longest < shape.max_tokens:
        message = f"context_length: {shape.max_tokens} tokens do not fit into {shape.n_pages} pages"
        raise ValueError(message)
    return replace(shape, max_tokens=longest)


def _check_fp8(model: PreTrainedModel, execution: Execution) -> None:
    """Raises ValueError where keys and values can't be stored so."""
    if model.device.type != "cuda":
        raise ValueError("kv_dtype: fp8 needs a GPU")
    if execution.by_rows is not None:
        raise ValueError(f"kv_dtype: {model.config.model_type} is computed row by row, not in fp8")
    if torch.cuda.get_device_capability(model.device) < FP8_CAPABILITY:
        raise ValueError("kv_dtype: fp8 needs a GPU of compute capability 8.9 or above")


def encoder_shape(model: PreTrainedModel, limits: EngineLimits) -> CacheShape:
    """Returns the shape for a model that keeps nothing of a prompt: each task that runs has one
    page, of no bytes. The longest prompt fits into a step.

    Raises what `cache_shape` raises.
    """
    longest, tokens = longest_prompt(model), max(limits.max_batch_tokens, limits.max_running)
    if (limits.context_length or 0) > longest:
        raise ValueError(f"context_length: the model was made for {longest} tokens")
    max_tokens = limits.context_length or min(longest, tokens)
    return CacheShape(
        layout=(NOTHING,),
        n_pages=limits.max_running,
        page_size=max_tokens + 1,  # so that no page is ever full, and none is found again
        max_tasks=limits.max_running,
        max_tokens=max_tokens,
        max_new_tokens=max(tokens, max_tokens),
    )


def _sized(
    loaded: LoadedModel,
    execution: Execution,
    limits: EngineLimits,
    world_size: int,
    shape: CacheShape,
    draft: CheckedDraft | None,
) -> CacheShape:
    """Returns the shape with as many pages as fit into memory, but no more than the longest running
    tasks can use."""
    model, page_bytes = loaded.model, shape.page_bytes(loaded.dtype)
    setting, budget = "kv_gib", int((limits.kv_gib or CPU_KV_GIB) * GIB)
    if limits.kv_gib is None and model.device.type == "cuda":
        setting = "gpu_memory_utilization"
        is_alone = world_size == 1
        all_of_it = loaded, execution, limits, shape, draft
        memory = _measure_steps(*all_of_it) if is_alone else _estimate_step(model, limits, shape)
        budget = kv_budget(memory, limits.gpu_memory_utilization)
        budget -= adapter_bytes(model, limits.max_loras, limits.max_lora_rank)
        if is_alone and loaded.media is not None:
            budget -= limits.media_cache_mib * MIB + _ahead_bytes(model, shape)
    if shape.has_states and model.device.type == "cuda":
        shape, budget = with_room_for_states(shape, budget)
    if loaded.speech is not None:
        shape, budget = _with_room_for_sounds(model, limits, shape, setting, budget)
    max_useful = shape.max_tasks * shape.max_pages_of(shape.max_tokens)
    n_pages = min(max_useful, budget // max(1, page_bytes))
    if n_pages < 2:
        raise ValueError(
            f"{setting}: {budget / GIB:.3g} GiB are left for pages and hold {n_pages} of "
            f"{page_bytes} bytes"
        )
    return replace(shape, n_pages=n_pages)


def _ahead_bytes(model: PreTrainedModel, shape: CacheShape) -> int:
    """Returns the bytes of the vectors of media that running tasks have before their steps."""
    hidden: int = model.config.get_text_config(decoder=True).hidden_size
    n_bytes: int = STEPS_AHEAD * shape.max_new_tokens * hidden * model.dtype.itemsize
    return n_bytes


def with_room_for_states(shape: CacheShape, budget: int) -> tuple[CacheShape, int]:
    """Checkpoints take at most half of `budget` bytes, and states of running tasks half of the
    rest: there are no more of either. Returns what is left for pages, too."""
    state_bytes = max(1, shape.state_bytes)
    n = max(0, min(shape.max_checkpoints, budget // 2 // state_bytes))
    shape = _with_states_within(replace(shape, max_checkpoints=n), (budget - n * state_bytes) // 2)
    return shape, budget - shape.n_state_slots * state_bytes


def _with_states_within(shape: CacheShape, budget: int) -> CacheShape:
    """Returns the shape with no more running tasks than have their states in `budget` bytes, and
    one at least. Those of drafted tokens have a quarter of it."""
    state_bytes = max(1, shape.state_bytes)
    n_drafted = min(shape.max_drafted, budget // 4 // state_bytes)
    n_tasks = (budget // state_bytes - n_drafted) // SLOTS_PER_TASK
    return replace(shape, max_tasks=min(shape.max_tasks, max(1, n_tasks)), max_drafted=n_drafted)


def _with_room_for_sounds(
    model: PreTrainedModel, limits: EngineLimits, shape: CacheShape, setting: str, budget: int
) -> tuple[CacheShape, int]:
    """There are no more tasks than `budget` bytes hold with their sounds and whole transcripts.
    Returns what is left for pages, too. Raises ValueError where not even one has room."""
    sounds = SOUNDS_PER_TASK * cross_attention_bytes(model)
    task_bytes = sounds + shape.max_pages_of(shape.max_tokens) * shape.page_bytes(model.dtype)
    if model.device.type != "cuda" and limits.kv_gib is None:
        budget = max(budget, CPU_SOUND_TASKS * task_bytes)
    max_tasks = min(shape.max_tasks, budget // task_bytes)
    if not max_tasks:
        raise ValueError(
            f"{setting}: {budget / GIB:.3g} GiB are left, and a sound with its transcript takes "
            f"{task_bytes / GIB:.3g}"
        )
    return replace(shape, max_tasks=max_tasks), budget - max_tasks * sounds


def _measure_steps(
    loaded: LoadedModel,
    execution: Execution,
    limits: EngineLimits,
    shape: CacheShape,
    draft: CheckedDraft | None,
) -> DeviceMemory:
    """Measures a model and its draft model, which compute one after the other. Both have graphs. A
    draft head reads the model's step behind it."""
    n_layers = len(execution.layout)
    head = draft if isinstance(draft, DraftHead) else None
    own = _measure_step(loaded, execution, limits, shape, 0, head)
    if not isinstance(draft, DraftModel):
        return own
    drafts = _measure_step(draft.loaded, draft.execution, limits, shape, n_layers)
    return replace(own, peak=max(own.peak, drafts.peak), graphs=own.graphs + drafts.graphs)


@torch.inference_mode()
def _measure_step(
    loaded: LoadedModel,
    execution: Execution,
    limits: EngineLimits,
    shape: CacheShape,
    begin: int,
    head: DraftHead | None = None,
) -> DeviceMemory:
    """Runs a step of the largest batch, and sorts its logits as sampling may; then encodes the
    largest image. The model's layers are those from `begin` on."""
    model = loaded.model
    replace_attention(model, execution, shape.max_tokens)
    fuse(model)
    step = largest_step(limits, shape)
    pages = replace(shape, n_pages=step.page_table.size).storage(model.dtype, model.device)
    forward = make_forward(model, execution, pages.part(begin, begin + len(execution.layout)))
    torch.cuda.reset_peak_memory_stats(model.device)
    before = torch.cuda.memory_allocated(model.device)
    if head is not None:  # with the states that it carries
        head.prepare(shape.max_tokens)
        forward = head.parts(loaded, pages, limits).around(forward)
    with torch.cuda.device(model.device):
        forward.logits(step).float().sort(-1, descending=True).values.softmax(-1)
        if loaded.speech is not None:
            encode(model, loaded.speech, longest_features(model))
        if loaded.media is not None:  # which runs between steps
            loaded.media.encode_largest()
    torch.cuda.synchronize(model.device)
    activations = torch.cuda.max_memory_allocated(model.device) - before
    del pages, forward
    return _device_memory(model, limits, shape, activations)


def captured_tokens(limits: EngineLimits) -> int:
    """Returns the tokens of the largest captured step."""
    return max(limits.max_running, MAX_SMALL_CHUNK)


def graph_bytes(
    limits: EngineLimits, shape: CacheShape, activations: int, logits_bytes: int
) -> int:
    """Estimated memory of the captured steps, which share one pool: the activations of as many
    tokens as there are rows, their logits there and in the output, and the static page table.

    activations: of the largest step, in bytes. logits_bytes: of the largest captured step.
    """
    rows = captured_tokens(limits)
    tokens = max(limits.max_batch_tokens, rows)
    table_bytes = len(shape.groups) * rows * shape.pages_for(shape.max_tokens) * 4
    return -(-activations * rows // tokens) + 2 * logits_bytes + table_bytes


def _estimate_step(model: PreTrainedModel, limits: EngineLimits, shape: CacheShape) -> DeviceMemory:
    """Estimates the same from the sizes of the model, without a step."""
    config = model.config.get_text_config(decoder=True)
    hidden: int = config.hidden_size
    intermediate: int = getattr(config, "intermediate_size", None) or 4 * hidden
    per_token = HIDDEN_SIZES_PER_TOKEN * hidden + INTERMEDIATE_SIZES_PER_TOKEN * intermediate
    tokens = max(limits.max_batch_tokens, limits.max_running)
    logits_bytes = 4 * torch.float32.itemsize * max_sampled_tokens(limits) * config.vocab_size
    activations = tokens * per_token * model.dtype.itemsize + logits_bytes
    return _device_memory(model, limits, shape, activations)


def _device_memory(
    model: PreTrainedModel, limits: EngineLimits, shape: CacheShape, activations: int
) -> DeviceMemory:
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(model.device)
    weights = torch.cuda.memory_allocated(model.device)
    vocab_size = model.config.get_text_config(decoder=True).vocab_size
    logits_bytes = captured_tokens(limits) * vocab_size * model.dtype.itemsize
    graphs = graph_bytes(limits, shape, activations, logits_bytes)
    return DeviceMemory(total, free, weights, weights + activations, graphs)


def largest_step(limits: EngineLimits, shape: CacheShape) -> StepInputs:
    """A step with as many rows and tokens as a batch may have. The rows have equal lengths, give or
    take one token, and pages of their own."""
    tokens = max(limits.max_batch_tokens, limits.max_running)
    new_len = np.full(limits.max_running, tokens // limits.max_running, dtype=np.int64)
    new_len[: tokens % limits.max_running] += 1
    new_len = np.minimum(new_len, shape.max_tokens)
    ends = new_len.cumsum()
    n_pages, n_groups = shape.pages_for(int(new_len.max())), len(shape.groups)
    pages = np.arange(n_groups * limits.max_running * n_pages)
    return StepInputs(
        token_ids=np.zeros(ends[-1], dtype=np.int64),
        positions=np.arange(ends[-1]) - np.repeat(ends - new_len, new_len),
        total_len=new_len,
        new_len=new_len,
        page_table=pages.reshape(n_groups, -1, n_pages),
        logit_indices=np.resize(ends - 1, max_sampled_tokens(limits)),
        stale_tails=np.empty((0, 3), dtype=np.int64),
        state_slots=np.stack([np.full(len(new_len), NO_STATE), np.zeros_like(new_len)], axis=1),
    )


def _page_shape(
    model: PreTrainedModel, execution: Execution, limits: EngineLimits, draft: Layout
) -> CacheShape:
    """The shape with `n_pages` 0 and the whole context as `max_tokens`."""
    how, layout = execution.by_rows, execution.layout + draft
    max_tokens = _context_length(model, execution, limits, layout)
    n_bytes = state_bytes(model) if how is None else how.state_bytes
    return CacheShape(
        layout=within(layout, max_tokens),
        n_pages=0,
        page_size=limits.page_size,
        max_tasks=limits.max_running,
        max_tokens=max_tokens,
        max_new_tokens=max(limits.max_batch_tokens, limits.max_running),
        is_fp8=limits.kv_dtype == "fp8",
        has_states=execution.has_states,
        state_bytes=n_bytes,
        max_checkpoints=_max_checkpoints(limits, n_bytes),
        max_drafted=max_drafted(limits, model.device.type),
    )


def _max_checkpoints(limits: EngineLimits, n_bytes: int) -> int:
    """Returns the most checkpoints of a model whose sequences have states of `n_bytes` bytes."""
    if not n_bytes:
        return 0
    n, most = limits.ctx_checkpoints * limits.max_running, limits.ctx_checkpoints_mib
    return n if most < 0 else min(n, most * MIB // n_bytes)


def _context_length(
    model: PreTrainedModel, execution: Execution, limits: EngineLimits, layout: Layout
) -> int:
    """The tokens of the longest sequence.

    Raises UnsupportedModelError if the config has no limit, ValueError for a setting beyond it.
    """
    config = model.config.get_text_config(decoder=True)
    longest = max_position(model, execution)
    if longest is None:
        if limits.context_length:
            return limits.context_length
        if {*layout} == {NOTHING}:  # nothing in it grows with the context
            return STATES_CONTEXT
        raise UnsupportedModelError(
            f"{config.model_type} does not say how long its context is: set context_length"
        )
    if (limits.context_length or 0) > longest:
        raise ValueError(f"context_length: the model was made for {longest} tokens")
    return limits.context_length or longest


def max_position(model: PreTrainedModel, execution: Execution) -> int | None:
    """How many tokens a model was made for; None: its config does not say."""
    longest = longest_context(model.config.get_text_config(decoder=True))
    return None if longest is None else longest - execution.first_position
