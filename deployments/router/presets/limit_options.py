"""The options of one model that bound its engine, in the order of their table."""

from dataclasses import fields
from typing import Annotated, Literal

from pydantic import Field

from deployments.engine.limits import MODEL_DRAFT_TOKENS, ON_CPU, ON_GPU, EngineLimits
from deployments.router.presets.draft_options import (
    DraftMin,
    DraftModel,
    DraftPMin,
    DraftTokens,
    SpecType,
)
from deployments.router.presets.strict_options import Ini, StrictOptions, Unset
from deployments.router.presets.values import boolean

LIMITS = ON_CPU
DEFAULT_MAX_LORAS = 8  # of a model with adapters to choose from


class LimitOptions(StrictOptions):
    """EngineLimits says more of what they mean."""

    context_length: Annotated[
        int | None,
        Ini(("ctx-size", "c", "context-length", "LLAMA_ARG_CTX_SIZE"), unset="0"),
        Unset("the model's, or what the pages hold"),
    ] = Field(
        default=LIMITS.context_length,
        ge=2,
        description=(
            "Most tokens of prompt and answer together. Set it where the memory of GPUs "
            "differs, because replicas have to agree"
        ),
    )
    max_running: Annotated[
        int | None,
        Ini(("parallel", "np", "max-running", "LLAMA_ARG_N_PARALLEL"), unset="-1"),
        Unset("64, on a GPU 256"),
    ] = Field(default=None, ge=1, description="Sequences in one batch")
    max_batch_tokens: Annotated[
        int | None,
        Ini(("batch-size", "b", "max-batch-tokens", "LLAMA_ARG_BATCH")),
        Unset("512, on a GPU 4096"),
    ] = Field(default=None, ge=1, description="Tokens of one step")
    target_itl_ms: Annotated[float | None, Unset("no limit")] = Field(
        default=LIMITS.target_itl_ms,
        gt=0,
        description=(
            "Milliseconds between two tokens of a stream. A step computes only as much of "
            "other prompts as keeps this"
        ),
    )
    page_size: int = Field(
        default=LIMITS.page_size, ge=1, le=1024, description="Tokens of one page of the KV cache"
    )
    n_pages: Annotated[int | None, Unset("by `kv_gib`")] = Field(
        default=LIMITS.n_pages,
        ge=2,
        description=(
            "Pages of the KV cache, each of one group of layers: a model whose layers differ in "
            "their windows needs several for the same tokens"
        ),
    )
    kv_gib: Annotated[
        float | None,
        Ini(("kv-gib",), unset="auto"),
        Unset("1, on a GPU by `gpu_memory_utilization`"),
    ] = Field(
        default=LIMITS.kv_gib,
        gt=0,
        description=(
            "Memory for the KV cache of each rank, in GiB. On a CPU layers with a state have as "
            "much again for running sequences: others wait"
        ),
    )
    ctx_checkpoints: Annotated[
        int, Ini(("ctx-checkpoints", "ctxcp", "swa-checkpoints", "LLAMA_ARG_CTX_CHECKPOINTS"))
    ] = Field(
        default=LIMITS.ctx_checkpoints,
        ge=0,
        description=(
            "Of models with layers that keep a state: how many states are kept for prefixes, for "
            "each of `max_running`. 0: such a model finds no prefix cached"
        ),
    )
    ctx_checkpoints_mib: int = Field(
        default=LIMITS.ctx_checkpoints_mib,
        ge=-1,
        description="Memory for all of these states, in MiB. -1: no limit but their number",
    )
    checkpoint_min_step: Annotated[
        int, Ini(("checkpoint-min-step", "cms", "LLAMA_ARG_CHECKPOINT_MIN_STEP"))
    ] = Field(
        default=LIMITS.checkpoint_min_step,
        ge=1,
        description="Tokens between two of these states in a long sequence",
    )
    cache_disk: Annotated[str | None, Ini(("cache-disk",)), Unset("none")] = Field(
        default=LIMITS.cache_disk,
        min_length=1,
        pattern="^[/~]",
        description=(
            "A folder in which prefixes outlive memory, sleep and restarts, on a CPU. [What lies "
            "there](prefixes.md)"
        ),
    )
    cache_disk_mib: Annotated[int, Ini(("cache-disk-mib",))] = Field(
        default=LIMITS.cache_disk_mib,
        ge=1,
        description="Most that lies in this folder, of all models, in MiB",
    )
    cache_disk_write_mib: Annotated[int, Ini(("cache-disk-write-mib",))] = Field(
        default=LIMITS.cache_disk_write_mib,
        ge=1,
        description="Most that a replica writes there a second on average, in MiB",
    )
    pull_prefixes: Annotated[
        bool | None,
        Ini(("pull-prefixes",), read=boolean, unset="auto"),
        Unset("on a CPU, in one rank"),
    ] = Field(
        default=LIMITS.pull_prefixes,
        description=(
            "Pull prefixes from another replica where that is faster than to compute them. [How]"
            "(prefixes.md#prefixes-of-other-replicas)"
        ),
    )
    slot_save_path: Annotated[str | None, Ini(("slot-save-path",)), Unset("none")] = Field(
        default=LIMITS.slot_save_path,
        min_length=1,
        pattern="^[/~]",
        description=(
            "A folder in which clients save slots and restore them, on a CPU. Without one they "
            "can't. [What that is](prefixes.md#slots)"
        ),
    )
    slot_save_mib: Annotated[int, Ini(("slot-save-mib",))] = Field(
        default=LIMITS.slot_save_mib,
        ge=1,
        description="Most that one owner, which is an API key, has there, in MiB",
    )
    kv_dtype: Literal["auto", "fp8"] = Field(
        default=LIMITS.kv_dtype,
        description=(
            "Of the KV cache: as `dtype`, or `fp8` (e4m3, on GPUs from compute capability 8.9): "
            "twice the tokens in the same memory, less exact"
        ),
    )
    gpu_memory_utilization: float = Field(
        default=LIMITS.gpu_memory_utilization,
        gt=0,
        le=1,
        description=(
            "Share of its GPU that weights, the largest step and the KV cache take together"
        ),
    )
    draft_model: DraftModel = None
    spec_type: SpecType = None
    draft_tokens: DraftTokens = None
    draft_min: DraftMin = LIMITS.draft_min
    draft_p_min: DraftPMin = LIMITS.draft_p_min
    async_scheduling: Annotated[
        bool | None,
        Ini(("async-scheduling",), read=boolean, unset="auto"),
        Unset("on a GPU"),
    ] = Field(
        default=LIMITS.async_scheduling,
        description="Launch a step before the tokens of the last one are known",
    )
    max_loras: Annotated[int | None, Unset("8 with `lora_modules`, else 0")] = Field(
        default=None,
        ge=0,
        le=256,
        description=(
            "LoRA adapters that requests may choose at once. Requests with others wait for their "
            "turn. 0: they can't choose any"
        ),
    )
    max_lora_rank: Annotated[int | None, Unset("16, or the largest of `lora_modules`")] = Field(
        default=None,
        ge=1,
        le=256,
        description="Largest rank of such an adapter, or of those that one request adds up",
    )
    lora_cache_mib: int = Field(
        default=LIMITS.lora_cache_mib,
        ge=1,
        description="Memory of the host for such adapters that were read, in MiB",
    )
    media_cache_mib: int = Field(
        default=LIMITS.media_cache_mib,
        ge=0,
        description=(
            "Memory of the device, in MiB, for encoded images and sounds. One that comes again is "
            "not encoded again"
        ),
    )
    max_waiting: int = Field(
        default=LIMITS.max_waiting,
        ge=1,
        description=(
            "Requests that wait for pages. More are refused as overload, and one client has 8 "
            "of 9 places at most"
        ),
    )
    max_stuck_s: float = Field(
        default=LIMITS.max_stuck_s,
        gt=0,
        description="Seconds of one step after which the health check fails",
    )

    def limits(self, *, on_gpu: bool, lora_rank: int) -> EngineLimits:
        """Returns the limits, where those that are left open fit the device and the adapters.

        The device decides the number of rows and tokens, and the adapters of the preset decide the
        room for adapters. `lora_rank` is their largest rank; 0 for none. Raises ValueError where
        they find no room.
        """
        given = {f.name: getattr(self, f.name) for f in fields(EngineLimits)}
        sized = ON_GPU if on_gpu else ON_CPU
        for name in ("max_running", "max_batch_tokens"):
            given[name] = given[name] or getattr(sized, name)
        if given["draft_tokens"] is None:
            has_draft = self.draft_model is not None or self.spec_type is not None
            given["draft_tokens"] = MODEL_DRAFT_TOKENS if has_draft else LIMITS.draft_tokens
        if given["max_loras"] is None:
            given["max_loras"] = DEFAULT_MAX_LORAS if lora_rank else LIMITS.max_loras
        if given["max_lora_rank"] is None:
            given["max_lora_rank"] = max(LIMITS.max_lora_rank, lora_rank)
        if lora_rank and not given["max_loras"]:
            raise ValueError("lora-modules: with max-loras = 0 requests can't choose adapters")
        if lora_rank > given["max_lora_rank"]:
            raise ValueError(f"lora-modules: rank {lora_rank} is over max-lora-rank")
        return EngineLimits(**given)
