"""The sizes of an engine that an operator may set. Free of torch: routers read them too."""

from dataclasses import dataclass
from typing import Literal

CPU_KV_GIB = 1.0
CHECKPOINT_STEP = 4096  # tokens
# Tokens of a step with drafts. Up to this number one more token costs little.
MAX_DRAFTED_STEP_CPU, MAX_DRAFTED_STEP_GPU = 16, 128
MODEL_DRAFT_TOKENS = 8  # `draft_tokens` with a draft model or head, unless it is set


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """None leaves the choice to the engine.

    n_pages: KV pages in all; else `kv_gib` of memory, but no more than could ever be used.
    kv_gib: else CPU_KV_GIB on a CPU, and on a GPU what weights and the largest step leave of it. On
        a CPU layers with a state have as much again: no more sequences run than have theirs there.
    kv_dtype: of keys and values; the weights' own, or on a GPU "fp8": one byte each, e4m3.
    gpu_memory_utilization: the share of its GPU that the engine may take in all, in that case.
    ctx_checkpoints: of layers with a state: states kept for prefixes, for each of `max_running`; 0:
        no prefix is shared.
    ctx_checkpoints_mib: memory for all of them, in MiB; -1: without a limit.
    checkpoint_min_step: tokens between two of them in a long sequence.
    cache_disk: a folder for pages of the KV cache, where prefixes outlive memory, sleep and
        restarts; None: nothing is kept on a disk.
    cache_disk_mib: of all that is there, other models' pages counted, in MiB.
    cache_disk_write_mib: MiB a second that are written there on average.
    pull_prefixes: pages that another replica has are pulled where that is faster than to compute
        them, and others get those that are here; else on a CPU, in one rank.
    slot_save_path: a folder for the slots that clients save; None: they can't.
    slot_save_mib: of all that one owner has there, in MiB.
    context_length: longest sequence, prompt and output; else what the model was made for.
    max_batch_tokens: tokens computed in one step, at least max_running.
    target_itl_ms: milliseconds between tokens that a stream should not have to wait longer for
        because of others' prompts; else a step computes as many of their tokens as it may.
    max_waiting: accepted requests that have no pages yet; more are refused as overload.
        One client's are at most 8 times the free ones.
    max_stuck_s: a step longer than this fails the health check.
    draft_tokens: guessed for a sequence in a step, from where its last words stood before and from
        what its grammar leaves to say, and checked at once (speculative decoding): fewer steps for
        what repeats itself; 0: none.
        A step has at most 16 tokens with drafts, on a GPU 128. With a draft model or head, at most
        so many are drafted as pay.
    draft_min: a shorter draft of a draft model or head is not used. From 1 on it drafts whether or
        not that pays.
    draft_p_min: a draft ends before a token that the draft model or head finds less probable.
    async_scheduling: a step is launched before the host knows what the last one drew; else on a
        GPU. Where the host has to know it to sample, as for a grammar, sampling waits and the model
        does not.
    max_loras: LoRA adapters that the sequences of one step may have, each counted once; 0: requests
        can't choose any. Sequences with others wait for their turn.
    max_lora_rank: the largest rank of an adapter, or of those that one request adds up.
    lora_cache_mib: of the host's memory, for adapters that were read, in MiB.
    media_cache_mib: of the device's memory, for vectors of media that were encoded, in MiB.
    """

    page_size: int = 16
    n_pages: int | None = None
    kv_gib: float | None = None
    kv_dtype: Literal["auto", "fp8"] = "auto"
    gpu_memory_utilization: float = 0.9
    ctx_checkpoints: int = 32
    ctx_checkpoints_mib: int = 1024
    checkpoint_min_step: int = CHECKPOINT_STEP
    cache_disk: str | None = None
    cache_disk_mib: int = 10240
    cache_disk_write_mib: int = 256
    pull_prefixes: bool | None = None
    slot_save_path: str | None = None
    slot_save_mib: int = 10240
    context_length: int | None = None
    max_running: int = 64
    max_batch_tokens: int = 512
    target_itl_ms: float | None = None
    max_waiting: int = 1024
    max_stuck_s: float = 120.0
    draft_tokens: int = 0
    draft_min: int = 0
    draft_p_min: float = 0.0
    async_scheduling: bool | None = None
    max_loras: int = 0
    max_lora_rank: int = 16
    lora_cache_mib: int = 1024
    media_cache_mib: int = 256

    @property
    def outlives_engines(self) -> bool:
        """Whether files keep pages of the KV cache."""
        return self.cache_disk is not None or self.slot_save_path is not None


ON_CPU = EngineLimits()
# It computes many rows in the time of few, and has room for them.
ON_GPU = EngineLimits(max_running=256, max_batch_tokens=4096)


def max_drafted_step(device: str) -> int:
    """Tokens of a step with drafts, on a "cpu" or another device."""
    return MAX_DRAFTED_STEP_CPU if device == "cpu" else MAX_DRAFTED_STEP_GPU


def max_drafted(limits: EngineLimits, device: str) -> int:
    """The most tokens of one step that are drafted."""
    return min(max_drafted_step(device) - 1, limits.max_running * limits.draft_tokens)


def max_sampled_tokens(limits: EngineLimits) -> int:
    """The most tokens that one step may sample: one for each row and one for each drafted token."""
    drafted = min(limits.max_running * (1 + limits.draft_tokens), MAX_DRAFTED_STEP_GPU)
    return max(limits.max_running, drafted)
