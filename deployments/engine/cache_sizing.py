"""How large the cache of an engine is: by its limits alone, or by what a device has left.

On a GPU without a size of pages, one step of the largest batch says what computing takes.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from transformers import PretrainedConfig, PreTrainedModel

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.forward import Forward
from deployments.engine.forward.fusing import fuse
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.limits import CPU_KV_GIB, MAX_DRAFTED_STEP_GPU, EngineLimits
from deployments.engine.loading.checks import check_supported
from deployments.engine.loading.loader import attach
from deployments.engine.parallel.sharding import local_kv_heads
from kv.cache import CacheShape
from kv.storage import Storage

GIB = 1 << 30
# Of what is free beside others on the same device: their use may grow, and memory is in blocks.
SPARED = 0.9
# What one token holds at the peak of a layer, in widths of the model and of its inner layer, where
# no step could be tried: ranks compute only together.
WIDTHS, INNER_WIDTHS = 8, 3


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Bytes of a device around a step that was tried without a cache worth mentioning.

    total, free: of the device, the latter after the step and with nothing kept for reuse.
    held: what this process had allocated then, which is the weights.
    peak: the most that it had allocated during the step.
    """

    total: int
    free: int
    held: int
    peak: int


def kv_budget(memory: DeviceMemory, utilization: float) -> int:
    """Bytes for pages, so that weights, step and pages stay within that share of the device."""
    step = memory.peak - memory.held
    within_share = int(memory.total * utilization) - memory.peak
    within_free = int(memory.free * SPARED) - step
    return max(0, min(within_share, within_free))


def cache_shape(model: PreTrainedModel, limits: EngineLimits, n_ranks: int = 1) -> CacheShape:
    """The cache of each rank; `kv_gib` is of one. Raises ValueError or UnsupportedModelError."""
    check_supported(model.config)
    one = _page_shape(model, limits, n_ranks)
    if one.is_fp8 and model.device.type != "cuda":
        raise ValueError("kv_dtype: fp8 needs a GPU")
    size = Storage.page_bytes(
        one.n_layers, one.page_size, one.n_kv_heads, one.head_dim, one.storage_dtype(model.dtype)
    )
    context = one.max_tokens
    n_pages = limits.n_pages or _n_pages(model, limits, n_ranks, one, size)
    if limits.context_length and context > n_pages * one.page_size:
        raise ValueError(f"context_length: {context} tokens do not fit into {n_pages} pages")
    return replace(one, n_pages=n_pages, max_tokens=min(context, n_pages * one.page_size))


def _n_pages(
    model: PreTrainedModel, limits: EngineLimits, n_ranks: int, one: CacheShape, page_bytes: int
) -> int:
    """As many as memory holds and could ever be used."""
    useful = limits.max_running * one.pages_for(one.max_tokens)
    setting, there = "kv_gib", int((limits.kv_gib or CPU_KV_GIB) * GIB)
    if limits.kv_gib is None and model.device.type == "cuda":
        setting = "gpu_memory_utilization"
        memory = _profile(model, limits, one) if n_ranks == 1 else _estimate(model, limits)
        there = kv_budget(memory, limits.gpu_memory_utilization)
    n_pages = min(useful, there // page_bytes)
    if n_pages < 2:
        raise ValueError(
            f"{setting}: {there / GIB:.3g} GiB are left for pages and hold {n_pages} of "
            f"{page_bytes} bytes"
        )
    return n_pages


@torch.inference_mode()
def _profile(model: PreTrainedModel, limits: EngineLimits, one: CacheShape) -> DeviceMemory:
    """Runs the largest batch there will be, and has its logits sorted as sampling may."""
    attach(model, one)
    fuse(model)
    step = largest_step(limits, one)
    pages = replace(one, n_pages=step.page_table.size).storage(model.dtype, model.device)
    torch.cuda.reset_peak_memory_stats(model.device)
    before = torch.cuda.memory_allocated(model.device)
    with torch.cuda.device(model.device):
        Forward(model, pages).logits(step).float().sort(-1, descending=True).values.softmax(-1)
    torch.cuda.synchronize(model.device)
    grown = torch.cuda.max_memory_allocated(model.device) - before
    del pages
    return _memory(model, grown)


def _estimate(model: PreTrainedModel, limits: EngineLimits) -> DeviceMemory:
    config = model.config.get_text_config(decoder=True)
    inner: int = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    widths = WIDTHS * config.hidden_size + INNER_WIDTHS * inner
    tokens = max(limits.max_batch_tokens, limits.max_running)
    logits = 4 * torch.float32.itemsize * most_drawing(limits) * config.vocab_size
    return _memory(model, tokens * widths * model.dtype.itemsize + logits)


def _memory(model: PreTrainedModel, step: int) -> DeviceMemory:
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(model.device)
    held = torch.cuda.memory_allocated(model.device)
    return DeviceMemory(total=total, free=free, held=held, peak=held + step)


def largest_step(limits: EngineLimits, one: CacheShape) -> StepInputs:
    """As many rows and tokens as fit into a batch, the latter spread over the former."""
    tokens = max(limits.max_batch_tokens, limits.max_running)
    new_len = np.full(limits.max_running, tokens // limits.max_running, dtype=np.int64)
    new_len[: tokens % limits.max_running] += 1
    new_len = np.minimum(new_len, one.max_tokens)
    ends = new_len.cumsum()
    n_pages = one.pages_for(int(new_len.max()))
    return StepInputs(
        token_ids=np.zeros(ends[-1], dtype=np.int64),
        positions=np.arange(ends[-1]) - np.repeat(ends - new_len, new_len),
        total_len=new_len,
        new_len=new_len,
        page_table=np.arange(limits.max_running * n_pages).reshape(-1, n_pages),
        logit_indices=np.resize(ends - 1, most_drawing(limits)),
        stale_tails=np.empty((0, 2), dtype=np.int64),
    )


def most_drawing(limits: EngineLimits) -> int:
    """Tokens of one step behind which one is drawn: the last of each row, and drafts."""
    drafted = min(limits.max_running * (1 + limits.draft_tokens), MAX_DRAFTED_STEP_GPU)
    return max(limits.max_running, drafted)


def _page_shape(model: PreTrainedModel, limits: EngineLimits, n_ranks: int) -> CacheShape:
    """The cache with its pages still to be counted; `max_tokens` is the whole context."""
    config = model.config.get_text_config(decoder=True)
    heads: int = config.num_attention_heads
    kv_heads: int = getattr(config, "num_key_value_heads", None) or heads
    return CacheShape(
        n_layers=config.num_hidden_layers,
        n_pages=0,
        page_size=limits.page_size,
        n_kv_heads=kv_heads if n_ranks == 1 else local_kv_heads(model, kv_heads, n_ranks),
        head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
        max_tasks=limits.max_running,
        max_tokens=_context_length(config, limits),
        is_fp8=limits.kv_dtype == "fp8",
    )


def _context_length(config: PretrainedConfig, limits: EngineLimits) -> int:
    """Raises UnsupportedModelError, or ValueError for more than the model was made for."""
    longest: int | None = getattr(config, "max_position_embeddings", None)
    if longest is None:
        raise UnsupportedModelError(f"{config.model_type} does not say how long its context is")
    if (limits.context_length or 0) > longest:
        raise ValueError(f"context_length: the model was made for {longest} tokens")
    return limits.context_length or longest
