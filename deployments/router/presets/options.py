"""Every option of one model, once: its name, its limits, its INI keys, what it means.

Arguments, presets and their checks are all made from this table, so that they can't differ.
"""

from dataclasses import fields
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from deployments.model.settings import (
    Autoscaling,
    MergedAdapter,
    ModelSettings,
    SamplingDefaults,
    check_settings,
)
from deployments.router.presets.limit_options import LimitOptions
from deployments.router.presets.option_types import (
    AdapterOptions,
    Dialect,
    Model,
    Name,
    PoolingOption,
    ScalingOptions,
    ServedAdapterOptions,
    Starter,
    Task,
    adapter_from_path,
)
from deployments.router.presets.served_adapters import read_adapters
from deployments.router.presets.strict_options import Ini, StrictOptions, Unset
from deployments.router.presets.values import (
    bar_separated,
    boolean,
    comma_separated,
    gpus_for_layers,
    hub_file,
    hub_id,
    named_adapter,
    named_adapters,
    plain_adapters,
    scaled_adapters,
)
from deployments.router.settings import Preset

SETTINGS = ModelSettings(name="", path="")


class ServedOptions(StrictOptions):
    """Options of what is served and how; ModelSettings says more of what they mean."""

    model: Annotated[
        Model | None,
        Ini(("model", "m", "LLAMA_ARG_MODEL")),
        Ini(("hf-repo", "hf", "hfr", "LLAMA_ARG_HF_REPO"), read=hub_id),
        Ini(("hf-file", "hff", "LLAMA_ARG_HF_FILE"), read=hub_file),
        Unset("a section has to say it; of the argument: the demo model"),
    ] = Field(
        default=None,
        description=(
            "Directory with a config.json, GGUF file, Hugging Face id, or an id with a tag or a "
            "file: `owner/name:Q4_K_M`"
        ),
    )
    aliases: Annotated[
        tuple[Name, ...], Ini(("alias", "a", "aliases", "LLAMA_ARG_ALIAS"), read=comma_separated)
    ] = Field(default=(), description="Other names that clients may use")
    tags: Annotated[tuple[Name, ...], Ini(("tags", "LLAMA_ARG_TAGS"), read=comma_separated)] = (
        Field(default=(), description="Shown in the list of models, without effect")
    )
    starters: Annotated[
        tuple[Starter, ...],
        Ini(("starters",), read=bar_separated, separator=" | "),
        Unset("none; the demo model has its own"),
    ] = Field(default=(), description="Questions that the page offers in a new chat with the model")
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
    parse_special_in_messages: Annotated[
        bool, Ini(("parse-special-in-messages",), read=boolean)
    ] = Field(
        default=False,
        description=(
            "Read what of messages and tools spells a control token as that token. Whoever writes "
            "such a text can then open turns in other names"
        ),
    )
    unseen_media: Annotated[
        Literal["refuse", "describe"] | None,
        Ini(("unseen-media",)),
        Unset("refuse what users send, describe what tools return"),
    ] = Field(
        default=None,
        description="What becomes of images and sounds that the model can't read: a 400, or one "
        "line of text in their place",
    )
    task: Task = None
    pooling: PoolingOption = None
    adapters: Annotated[
        tuple[Annotated[AdapterOptions, BeforeValidator(adapter_from_path)], ...],
        Ini(("lora",), read=plain_adapters),
        Ini(("lora-scaled",), read=scaled_adapters),
    ] = Field(default=(), description="LoRA adapters in PEFT's form, merged into the weights")
    lora_modules: Annotated[
        tuple[Annotated[ServedAdapterOptions, BeforeValidator(named_adapter)], ...],
        Ini(("lora-modules",), read=named_adapters),
    ] = Field(
        default=(), description="LoRA adapters that requests choose by name, beside the plain model"
    )
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


class ModelOptions(LimitOptions, ServedOptions):
    """The options of one model, those of its engine last."""

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
        adapters = read_adapters(self.lora_modules)
        return Preset(
            settings=self._settings(name, max((adapter.rank for adapter in adapters), default=0)),
            aliases=tuple(dict.fromkeys(alias for alias in self.aliases if alias != name)),
            tags=tuple(dict.fromkeys(self.tags)),
            starters=tuple(dict.fromkeys(self.starters)),
            load_on_startup=self.load_on_startup,
            pinned=self.pinned,
            source=source,
            text=text,
            served_adapters=adapters,
        )

    def _settings(self, name: str, lora_rank: int) -> ModelSettings:
        """`lora_rank` is the largest one of the adapters that requests choose; 0 without any."""
        if self.model is None:
            raise ValueError("no model is named: a directory, a GGUF file or a hub id")
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
            spec_type=self.spec_type,
            dialect=self.dialect,
            parse_special_in_messages=self.parse_special_in_messages,
            unseen_media=self.unseen_media,
            task=self.task,
            pooling=self.pooling,
            adapters=tuple(MergedAdapter(path=a.path, scale=a.scale) for a in self.adapters),
            sampling=SamplingDefaults(
                **{field.name: getattr(self, field.name) for field in fields(SamplingDefaults)}
            ),
            sleep_idle_s=self.sleep_idle_s,
            sleep_weights=self.sleep_weights,
            stop_timeout_s=self.stop_timeout_s,
            limits=self.limits(on_gpu=bool(self.num_gpus), lora_rank=lora_rank),
        )
        check_settings(settings)
        return settings

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
