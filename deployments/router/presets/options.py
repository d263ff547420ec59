"""Every option of one model, once: its name, its limits, its INI keys, what it means.

Arguments, presets and their checks are all made from this table, so that they can't differ.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Annotated, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from deployments.engine.limits import ON_CPU, ON_GPU, EngineLimits
from deployments.model.settings import (
    Adapter,
    Autoscaling,
    ModelSettings,
    SamplingDefaults,
    check_settings,
)
from deployments.router.presets.paths import sayable
from deployments.router.presets.values import (
    boolean,
    comma_separated,
    gpus_for_layers,
    hub_id,
    plain_adapters,
    scaled_adapters,
)
from deployments.router.settings import Preset
from deployments.text.dialects.registry import DIALECTS

LIMITS = ON_CPU
SCALING = Autoscaling()
SETTINGS = ModelSettings(name="", path="")
NEAR = 0.7  # as alike has a name to be that somebody may have meant it


@dataclass(frozen=True, slots=True)
class Ini:
    """A key of a presets file that says an option; without one it is the option's name.

    names: all that are understood, the environment's too; the first is shown.
    read: from the file's text to what the option takes.
    unset: llama-server's word for leaving the choice to itself.
    """

    names: tuple[str, ...]
    read: Callable[[str], object] = str
    unset: str | None = None


class Options(BaseModel):
    """Unknown names are errors: a misspelt setting must not be silently off."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_names_and_lists(cls, said: object) -> object:
        """With more help than pydantic would give."""
        for name, value in said.items() if isinstance(said, dict) else ():
            if name not in cls.model_fields:
                raise ValueError(f"unknown setting {name}{cls._nearest(str(name))}")
            if isinstance(value, str) and get_origin(cls.model_fields[name].annotation) is tuple:
                raise ValueError(f"{name}: must be a list")
        return said

    @classmethod
    def _nearest(cls, unknown: str) -> str:
        named = cls._named()
        near = get_close_matches(unknown.replace("-", "_"), named, n=1, cutoff=NEAR)
        return f"; did you mean {named[near[0]]}?" if near else ""

    @classmethod
    def _named(cls) -> dict[str, str]:
        """Its options by their own names and by those that presets files have, and then those of
        the options within it.
        """
        named = {
            key.replace("-", "_"): name
            for name, field in cls.model_fields.items()
            for ini in (*field.metadata, Ini((name,)))
            if isinstance(ini, Ini)
            for key in ini.names
        }
        for name, field in cls.model_fields.items():
            for kind in (field.annotation, *get_args(field.annotation)):
                if isinstance(kind, type) and issubclass(kind, Options):
                    within = kind._named().items()
                    named = {key: f"{name}: {{{inner}}}" for key, inner in within} | named
        return named


class ScalingOptions(Options):
    """Of Serve's autoscaling, on what the engines say of themselves."""

    min_replicas: int = Field(
        default=SCALING.min_replicas, ge=0, description="Replicas without any load; 0 is a choice"
    )
    max_replicas: int = Field(
        default=SCALING.max_replicas, ge=1, description="Replicas under any load"
    )
    target_tokens: int = Field(
        default=SCALING.target_tokens,
        ge=1,
        description="Of running and waiting sequences, for one replica",
    )
    target_usage: float = Field(
        default=SCALING.target_usage, gt=0, le=1, description="Share of its pages to be held"
    )
    upscale_delay_s: Annotated[float, Ini(("upscale-delay", "upscale-delay-s"))] = Field(
        default=SCALING.upscale_delay_s, ge=0, description="Seconds of load before one more"
    )
    downscale_delay_s: Annotated[float, Ini(("downscale-delay", "downscale-delay-s"))] = Field(
        default=SCALING.downscale_delay_s, ge=0, description="Seconds of calm before one less"
    )


class AdapterOptions(Options):
    path: str = Field(min_length=1, description="Folder with an adapter_config.json")
    scale: float = 1.0


def _from_path(value: object) -> object:
    return {"path": value, "scale": 1.0} if isinstance(value, str) else value


def _known_dialect(name: str) -> str:
    if name and name not in DIALECTS:
        raise ValueError(f"must be one of {', '.join(sorted(DIALECTS))}")
    return name


def _served_form(model: str) -> str:
    if model.endswith(".gguf"):
        raise ValueError(
            "GGUF files can't be read: name a directory with a config.json, or a hub id"
        )
    return model


Model = Annotated[str, Field(min_length=1), AfterValidator(_served_form)]
Name = Annotated[str, Field(min_length=1), AfterValidator(sayable)]


class ModelOptions(Options):
    """Of one model; EngineLimits and ModelSettings say more of what they mean."""

    model: Annotated[
        Model | None,
        Ini(("model", "m", "LLAMA_ARG_MODEL")),
        Ini(("hf-repo", "hf", "hfr", "LLAMA_ARG_HF_REPO"), read=hub_id),
    ] = Field(default=None, description="Directory with a config.json, or hub id")
    aliases: Annotated[
        tuple[Name, ...], Ini(("alias", "a", "aliases", "LLAMA_ARG_ALIAS"), read=comma_separated)
    ] = Field(default=(), description="Other names that clients may use")
    tags: Annotated[tuple[Name, ...], Ini(("tags", "LLAMA_ARG_TAGS"), read=comma_separated)] = (
        Field(default=(), description="Shown in the list of models, of no effect")
    )
    load_on_startup: Annotated[bool, Ini(("load-on-startup",), read=boolean)] = Field(
        default=False, description="Before anybody asks for it"
    )
    pinned: Annotated[bool, Ini(("pinned",), read=boolean)] = Field(
        default=False, description="Never unloaded to make room for another model"
    )
    stop_timeout_s: Annotated[float, Ini(("stop-timeout", "stop-timeout-s"))] = Field(
        default=SETTINGS.stop_timeout_s, ge=0, description="Seconds for its streams to end in"
    )
    sleep_idle_s: Annotated[
        float | None,
        Ini(
            ("sleep-idle-seconds", "sleep-idle-s", "LLAMA_ARG_SLEEP_IDLE_SECONDS"),
            unset="-1",
        ),
    ] = Field(
        default=None, gt=0, description="Without a request for so long it gives up its memory"
    )
    sleep_weights: Literal["host", "drop"] | None = Field(
        default=None, description="Asleep: kept in host memory, or dropped and read again"
    )
    num_replicas: Annotated[int, Ini(("num-replicas", "replicas"))] = Field(
        default=1, ge=1, description="Engines, each with the whole model"
    )
    autoscaling: ScalingOptions | None = Field(
        default=None, description="Replicas by load, in the place of num_replicas"
    )
    num_cpus: Annotated[
        float | None, Ini(("num-cpus", "threads", "t", "LLAMA_ARG_THREADS"), unset="-1")
    ] = Field(default=None, gt=0, description="Cores of a replica")
    num_gpus: Annotated[
        float | None,
        Ini(("num-gpus",)),
        Ini(("n-gpu-layers", "gpu-layers", "ngl", "LLAMA_ARG_N_GPU_LAYERS"), read=gpus_for_layers),
    ] = Field(default=None, ge=0, description="Of each of a replica's ranks, 1 at most; 0: none")
    tensor_parallel: int = Field(
        default=1, ge=1, description="Ranks that share one replica's weights"
    )
    dtype: Literal["bfloat16", "float16", "float32"] | None = Field(
        default=None, description="Of weights and pages; what the hardware is good at without it"
    )
    quantization: Literal["none", "int8", "int4", "fp8"] = Field(
        default=SETTINGS.quantization, description="Weights of linear layers in fewer bits"
    )
    dialect: Annotated[str, AfterValidator(_known_dialect)] = Field(
        default="", description="How it writes tool calls; by its chat template without it"
    )
    adapters: Annotated[
        tuple[Annotated[AdapterOptions, BeforeValidator(_from_path)], ...],
        Ini(("lora",), read=plain_adapters),
        Ini(("lora-scaled",), read=scaled_adapters),
    ] = Field(default=(), description="LoRA adapters in PEFT's form, merged into the weights")
    temperature: Annotated[float | None, Ini(("temp", "temperature", "LLAMA_ARG_TEMP"))] = Field(
        default=None, ge=0, le=2, description="Where a request says nothing; 0 is greedy"
    )
    top_k: Annotated[int | None, Ini(("top-k", "LLAMA_ARG_TOP_K"))] = Field(
        default=None, ge=0, description="Likewise: likeliest tokens to draw from; 0 for all"
    )
    top_p: Annotated[float | None, Ini(("top-p",))] = Field(
        default=None, ge=0, le=1, description="Likewise: the likeliest that make up this share"
    )
    min_p: Annotated[float | None, Ini(("min-p",))] = Field(
        default=None, ge=0, le=1, description="Likewise: at least this share of the likeliest one"
    )
    typical_p: Annotated[float | None, Ini(("typical", "typical-p"))] = Field(
        default=None, gt=0, le=1, description="Likewise: the most typical that make up this share"
    )
    repetition_penalty: Annotated[float | None, Ini(("repeat-penalty", "repetition-penalty"))] = (
        Field(default=None, gt=0, le=2, description="Likewise: divides what was there before")
    )
    presence_penalty: Annotated[float | None, Ini(("presence-penalty",))] = Field(
        default=None, ge=-2, le=2, description="Likewise: taken from what was in the answer"
    )
    frequency_penalty: Annotated[float | None, Ini(("frequency-penalty",))] = Field(
        default=None, ge=-2, le=2, description="Likewise: for each time that it was"
    )
    context_length: Annotated[
        int | None, Ini(("ctx-size", "c", "context-length", "LLAMA_ARG_CTX_SIZE"), unset="0")
    ] = Field(default=LIMITS.context_length, ge=2, description="Longest prompt and answer together")
    max_running: Annotated[
        int | None, Ini(("parallel", "np", "max-running", "LLAMA_ARG_N_PARALLEL"), unset="-1")
    ] = Field(default=None, ge=1, description="Sequences in one batch; 64, or 256 on a GPU")
    max_batch_tokens: Annotated[
        int | None, Ini(("batch-size", "b", "max-batch-tokens", "LLAMA_ARG_BATCH"))
    ] = Field(default=None, ge=1, description="Tokens of one step; 512, or 4096 on a GPU")
    target_itl_ms: float | None = Field(
        default=LIMITS.target_itl_ms,
        gt=0,
        description="Milliseconds between a stream's tokens; prompts of others get what is left",
    )
    page_size: int = Field(
        default=LIMITS.page_size, ge=1, le=1024, description="Tokens of a page of the KV cache"
    )
    n_pages: int | None = Field(default=LIMITS.n_pages, ge=2, description="Pages in all")
    kv_gib: Annotated[float | None, Ini(("kv-gib",), unset="auto")] = Field(
        default=LIMITS.kv_gib, gt=0, description="Memory for pages, where n_pages is not said"
    )
    kv_dtype: Literal["auto", "fp8"] = Field(
        default=LIMITS.kv_dtype, description="Of pages: the weights' own, or fp8 on a GPU"
    )
    gpu_memory_utilization: float = Field(
        default=LIMITS.gpu_memory_utilization,
        gt=0,
        le=1,
        description="Share of a GPU that may be taken in all, where neither is said",
    )
    draft_tokens: Annotated[
        int, Ini(("draft-tokens", "draft-max", "draft", "draft-n", "LLAMA_ARG_DRAFT_MAX"))
    ] = Field(
        default=LIMITS.draft_tokens,
        ge=0,
        le=64,
        description="Guessed a step from where a sequence's last words stood before; 0: none",
    )
    async_scheduling: Annotated[
        bool | None, Ini(("async-scheduling",), read=boolean, unset="auto")
    ] = Field(
        default=LIMITS.async_scheduling,
        description="Launch a step before the last one's tokens are known; auto: on a GPU",
    )
    max_waiting: int = Field(
        default=LIMITS.max_waiting, ge=1, description="Requests without pages; more are refused"
    )
    max_stuck_s: float = Field(
        default=LIMITS.max_stuck_s, gt=0, description="A longer step fails the health check"
    )

    def said(self) -> dict[str, object]:
        """The options that somebody chose; all others have their defaults."""
        return self.model_dump(exclude_unset=True)

    def over(self, base: "ModelOptions") -> "ModelOptions":
        """What is said here, and of the rest what `base` says."""
        said, below = self.said(), base.said()
        scaling, scaling_below = said.get("autoscaling"), below.get("autoscaling")
        if "num_replicas" in said:
            below.pop("autoscaling", None)
        elif isinstance(scaling, dict):
            below.pop("num_replicas", None)
        if isinstance(scaling, dict) and isinstance(scaling_below, dict):
            said["autoscaling"] = scaling_below | scaling
        return ModelOptions.model_validate(below | said)

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
