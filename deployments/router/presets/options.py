"""Every option of one model, once: its name, its limits, its INI keys, what it means.

Arguments, presets and their checks are all made from this table, so that they can't differ.
"""

from dataclasses import fields
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from deployments.engine.limits import MODEL_DRAFT_TOKENS, ON_CPU, ON_GPU, EngineLimits
from deployments.model.settings import (
    Adapter,
    Autoscaling,
    ModelSettings,
    SamplingDefaults,
    check_settings,
)
from deployments.router.presets.draft_options import (
    DraftMin,
    DraftModel,
    DraftPMin,
    DraftTokens,
)
from deployments.router.presets.option_types import (
    AdapterOptions,
    Dialect,
    Model,
    Name,
    ScalingOptions,
    adapter_from_path,
)
from deployments.router.presets.strict_options import Ini, StrictOptions, Unset
from deployments.router.presets.values import (
    boolean,
    comma_separated,
    gpus_for_layers,
    hub_id,
    plain_adapters,
    scaled_adapters,
)
from deployments.router.settings import Preset

LIMITS = ON_CPU
SETTINGS = ModelSettings(name="", path="")


class ModelOptions(StrictOptions):
    """Of one model; EngineLimits and ModelSettings say more of what they mean."""

    model: Annotated[
        Model | None,
        Ini(("model", "m", "LLAMA_ARG_MODEL")),
        Ini(("hf-repo", "hf", "hfr", "LLAMA_ARG_HF_REPO"), read=hub_id),
        Unset("the demo model"),
    ] = Field(default=None, description="Directory with a config.json, or Hugging Face id")
    aliases: Annotated[
        tuple[Name, ...], Ini(("alias", "a", "aliases", "LLAMA_ARG_ALIAS"), read=comma_separated)
    ] = Field(default=(), description="Other names that clients may use")
    tags: Annotated[tuple[Name, ...], Ini(("tags", "LLAMA_ARG_TAGS"), read=comma_separated)] = (
        Field(default=(), description="Shown in the list of models, without effect")
    )
    load_on_startup: Annotated[
        bool,
        Ini(("load-on-startup",), read=boolean),
        Unset("off; on for the argument `model`"),
    ] = Field(
        default=False,
        description=(
            "Load the model before a request names it. A load that fails is tried again, "
            "after 30 s at first"
        ),
    )
    pinned: Annotated[
        bool,
        Ini(("pinned",), read=boolean),
        Unset("off; on for the argument `model`"),
    ] = Field(default=False, description="Never unload the model to make room for another one")
    stop_timeout_s: Annotated[float, Ini(("stop-timeout", "stop-timeout-s"))] = Field(
        default=SETTINGS.stop_timeout_s,
        ge=0,
        description="Seconds that streams have to end when the model is unloaded",
    )
    sleep_idle_s: Annotated[
        float | None,
        Ini(
            ("sleep-idle-seconds", "sleep-idle-s", "LLAMA_ARG_SLEEP_IDLE_SECONDS"),
            unset="-1",
        ),
        Unset("never"),
    ] = Field(
        default=None,
        gt=0,
        description="Seconds without a request after which the model gives its memory back",
    )
    sleep_weights: Annotated[
        Literal["host", "drop"] | None, Unset("`host` with GPUs and one rank, else `drop`")
    ] = Field(
        default=None,
        description="Where weights are during sleep: in host memory, or dropped and read again",
    )
    num_replicas: Annotated[int, Ini(("num-replicas", "replicas"))] = Field(
        default=1, ge=1, description="Engines, each with the whole model"
    )
    autoscaling: Annotated[ScalingOptions | None, Unset("off")] = Field(
        default=None, description="Number of replicas by load, in the place of num_replicas"
    )
    num_cpus: Annotated[
        float | None,
        Ini(("num-cpus", "threads", "t", "LLAMA_ARG_THREADS"), unset="-1"),
        Unset("1 a rank with GPUs, else half of the node's cores, shared by its replicas"),
    ] = Field(default=None, gt=0, description="Cores of a replica")
    num_gpus: Annotated[
        float | None,
        Ini(("num-gpus",)),
        Ini(("n-gpu-layers", "gpu-layers", "ngl", "LLAMA_ARG_N_GPU_LAYERS"), read=gpus_for_layers),
        Unset("none"),
    ] = Field(
        default=None,
        ge=0,
        description=(
            "GPUs of each rank of a replica, 1 at most. `ngl = 0` is none, any other `ngl` is 1"
        ),
    )
    tensor_parallel: int = Field(
        default=1, ge=1, description="Ranks on one node that share one replica's weights"
    )
    dtype: Annotated[
        Literal["bfloat16", "float16", "float32"] | None,
        Unset("`bfloat16` where it is fast, else `float32`"),
    ] = Field(
        default=None,
        description=(
            "Of weights and pages. Set it where nodes differ, because replicas have to agree"
        ),
    )
    quantization: Literal["none", "int8", "int4", "fp8"] = Field(
        default=SETTINGS.quantization,
        description="Store the weights of linear layers in fewer bits",
    )
    dialect: Annotated[Dialect, Unset("from the chat template")] = Field(
        default="", description="How the model writes thoughts and tool calls"
    )
    adapters: Annotated[
        tuple[Annotated[AdapterOptions, BeforeValidator(adapter_from_path)], ...],
        Ini(("lora",), read=plain_adapters),
        Ini(("lora-scaled",), read=scaled_adapters),
    ] = Field(default=(), description="LoRA adapters in PEFT's form, merged into the weights")
    temperature: Annotated[float | None, Ini(("temp", "temperature", "LLAMA_ARG_TEMP"))] = Field(
        default=None, ge=0, le=2, description="Where a request does not set it. 0 is greedy"
    )
    top_k: Annotated[int | None, Ini(("top-k", "LLAMA_ARG_TOP_K"))] = Field(
        default=None,
        ge=0,
        description=(
            "Where a request does not set it: the most likely tokens to draw from. 0 is all"
        ),
    )
    top_p: Annotated[float | None, Ini(("top-p",))] = Field(
        default=None,
        ge=0,
        le=1,
        description="Where a request does not set it: the share of probability to draw from",
    )
    min_p: Annotated[float | None, Ini(("min-p",))] = Field(
        default=None,
        ge=0,
        le=1,
        description=(
            "Where a request does not set it: the least probability, as a share of the highest one"
        ),
    )
    typical_p: Annotated[float | None, Ini(("typical", "typical-p"))] = Field(
        default=None,
        gt=0,
        le=1,
        description="Where a request does not set it: the share of typical tokens to draw from",
    )
    repetition_penalty: Annotated[float | None, Ini(("repeat-penalty", "repetition-penalty"))] = (
        Field(
            default=None,
            gt=0,
            le=2,
            description=(
                "Where a request does not set it: divides the logits of tokens that occurred"
            ),
        )
    )
    presence_penalty: Annotated[float | None, Ini(("presence-penalty",))] = Field(
        default=None,
        ge=-2,
        le=2,
        description=(
            "Where a request does not set it: subtracted from the logits of tokens of the answer"
        ),
    )
    frequency_penalty: Annotated[float | None, Ini(("frequency-penalty",))] = Field(
        default=None,
        ge=-2,
        le=2,
        description="Where a request does not set it: subtracted once for each occurrence",
    )
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
        default=LIMITS.kv_gib, gt=0, description="Memory for the KV cache of each rank, in GiB"
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
    cache_ram_mib: Annotated[int, Ini(("cache-ram", "cram", "LLAMA_ARG_CACHE_RAM"))] = Field(
        default=LIMITS.cache_ram_mib,
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
    kv_dtype: Literal["auto", "fp8"] = Field(
        default=LIMITS.kv_dtype,
        description=(
            "Of the KV cache: as `dtype`, or `fp8` (e4m3, on a GPU): twice the tokens in the "
            "same memory, less exact"
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

    def given(self) -> dict[str, object]:
        """The options that somebody chose; all others have their defaults."""
        return self.model_dump(exclude_unset=True)

    def over(self, base: "ModelOptions") -> "ModelOptions":
        """These options over those of `base`."""
        given, below = self.given(), base.given()
        scaling, scaling_below = given.get("autoscaling"), below.get("autoscaling")
        if "num_replicas" in given:
            below.pop("autoscaling", None)
        elif isinstance(scaling, dict):
            below.pop("num_replicas", None)
        if isinstance(scaling, dict) and isinstance(scaling_below, dict):
            given["autoscaling"] = scaling_below | scaling
        return ModelOptions.model_validate(below | given)

    def preset(self, name: str, *, source: str, text: str = "") -> Preset:
        """Raises ValueError for options that contradict each other."""
        return Preset(
            settings=self._settings(name),
            aliases=tuple(dict.fromkeys(one for one in self.aliases if one != name)),
            tags=tuple(dict.fromkeys(self.tags)),
            load_on_startup=self.load_on_startup,
            pinned=self.pinned,
            source=source,
            text=text,
        )

    def _settings(self, name: str) -> ModelSettings:
        if self.model is None:
            raise ValueError("no model is named: a directory or a hub id")
        settings = ModelSettings(
            name=name,
            path=self.model,
            num_replicas=self.num_replicas,
            autoscaling=self._autoscaling(),
            num_cpus=self.num_cpus,
            num_gpus=self.num_gpus,
            tensor_parallel=self.tensor_parallel,
            dtype=self.dtype,
            quantization=self.quantization,
            draft_model=self.draft_model,
            dialect=self.dialect,
            adapters=tuple(Adapter(path=a.path, scale=a.scale) for a in self.adapters),
            sampling=SamplingDefaults(
                **{one.name: getattr(self, one.name) for one in fields(SamplingDefaults)}
            ),
            sleep_idle_s=self.sleep_idle_s,
            sleep_weights=self.sleep_weights,
            stop_timeout_s=self.stop_timeout_s,
            limits=self._limits(),
        )
        check_settings(settings)
        return settings

    def _limits(self) -> EngineLimits:
        given = {f.name: getattr(self, f.name) for f in fields(EngineLimits)}
        sized = ON_GPU if self.num_gpus else ON_CPU
        for name in ("max_running", "max_batch_tokens"):
            given[name] = given[name] or getattr(sized, name)
        if given["draft_tokens"] is None:
            given["draft_tokens"] = MODEL_DRAFT_TOKENS if self.draft_model else LIMITS.draft_tokens
        return EngineLimits(**given)

    def _autoscaling(self) -> Autoscaling | None:
        if self.autoscaling is None:
            return None
        if "num_replicas" in self.model_fields_set:
            raise ValueError("num_replicas is for a model without autoscaling: say one of the two")
        scaling = Autoscaling(**self.autoscaling.model_dump())
        if "max_replicas" not in self.autoscaling.model_fields_set and scaling.min_replicas == 1:
            raise ValueError("autoscaling between one replica and one: say max_replicas")
        if scaling.min_replicas > scaling.max_replicas:
            raise ValueError(
                f"min_replicas ({scaling.min_replicas}) is over "
                f"max_replicas ({scaling.max_replicas})"
            )
        return scaling
