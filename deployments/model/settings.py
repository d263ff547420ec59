"""How one model is served. Free of torch: routers and builders read it too."""

import math
import re
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from importlib.metadata import version as version_of
from typing import Literal

from deployments.contract.outputs import ModelTask, Pooling
from deployments.contract.requests import SamplingParams
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.gguf.names import names_gguf

MODEL_DEPLOYMENT = "MantaModel"  # a name that no other application has


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaling:
    """The number of replicas by the load of the engines; 0 is allowed.

    target_tokens: of running and waiting sequences that one replica should have.
    target_usage: share of its pages that sequences should hold, 0 to 1.
    """

    min_replicas: int = 1
    max_replicas: int = 1
    target_tokens: int = 8192
    target_usage: float = 0.8
    upscale_delay_s: float = 10.0
    downscale_delay_s: float = 300.0

    @property
    def fewest(self) -> int:
        """Replicas of a model that is in use."""
        return max(1, self.min_replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedAdapter:
    """A LoRA adapter in PEFT's form, merged into the weights `scale` times."""

    path: str
    scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingDefaults:
    """The sampling that requests leave open.

    None leaves a value to the model's generation_config.json.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None

    def over(self, recommended: SamplingParams) -> SamplingParams:
        given = {name: value for name, value in asdict(self).items() if value is not None}
        return replace(recommended, **given)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """`path` is a directory, a GGUF file, a hub id, or the name of a GGUF file there. None leaves
    the choice to the replica and its node.

    num_replicas: without autoscaling.
    num_cpus: cores of a replica, shared by its ranks, and so the threads of its arithmetic.
    num_gpus: of each of its ranks, which use one at most.
    tensor_parallel: ranks that share one replica's weights.
    dtype: of the weights. Say it where nodes differ: replicas that choose differently refuse each
        other's requests, which must not be continued on other weights.
    quantization: of its linear layers and experts, after adapters were merged. Its groups are said
        in `deployments.engine.quantized.rounding`.
    draft_model: of a small model with the same tokenizer or of an EAGLE-3 head, which drafts, what
        `path` is.
    spec_type: "mtp": the head in the model's own files drafts.
    dialect: how it writes thoughts and calls of tools; "" for what its chat template says.
    parse_special_in_messages: whether messages may spell its control tokens.
    unseen_media: what becomes of media that it can't read; None: what users send is refused, and
        what tools return is described.
    task: what it answers with; None: what its files are made for.
    pooling: of its vectors; None: as its files say.
    sleep_idle_s: without a request for so long a replica gives up weights and pages; None: never.
    sleep_weights: where they go: to "host" memory, which needs a GPU and one rank, or nowhere
        ("drop"), to be read again.
    wake_timeout_s: for a wake; the router says here what it gives to a load.
    stop_timeout_s: what a stopping replica leaves to the streams that it has.
    """

    name: str
    path: str
    num_replicas: int = 1
    autoscaling: Autoscaling | None = None
    num_cpus: float | None = None
    num_gpus: float | None = None
    tensor_parallel: int = 1
    dtype: str | None = None
    quantization: Literal["none", "int8", "int4", "fp8"] = "none"
    draft_model: str | None = None
    spec_type: Literal["mtp"] | None = None
    dialect: str = ""
    parse_special_in_messages: bool = False
    unseen_media: Literal["refuse", "describe"] | None = None
    task: ModelTask | None = None
    pooling: Pooling | None = None
    adapters: tuple[MergedAdapter, ...] = ()
    sampling: SamplingDefaults = SamplingDefaults()
    sleep_idle_s: float | None = None
    sleep_weights: Literal["host", "drop"] | None = None
    wake_timeout_s: float = 600.0
    stop_timeout_s: float = 20.0
    limits: EngineLimits = field(default_factory=EngineLimits)

    @property
    def has_draft(self) -> bool:
        """Whether a model or a head drafts."""
        return self.draft_model is not None or self.spec_type is not None

    @property
    def may_have_peers(self) -> bool:
        """Whether there can be other replicas."""
        scaling = self.autoscaling
        return (self.num_replicas if scaling is None else scaling.max_replicas) > 1

    @property
    def application(self) -> str:
        """The Serve application of this model."""
        return application_name(self.name)

    @property
    def version(self) -> str:
        """Changes with every setting for which running replicas have to be replaced."""
        built = asdict(self)
        for name in ("num_replicas", "autoscaling", "wake_timeout_s", "stop_timeout_s"):
            del built[name]
        described = repr((version_of("manta"), sorted(built.items())))
        return blake2b(described.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def check_settings(settings: ModelSettings) -> None:
    """Raises ValueError for settings that contradict each other for any model."""
    on_gpu, alone = bool(settings.num_gpus), settings.tensor_parallel == 1
    if (settings.num_gpus or 0) > 1:
        n = math.ceil(settings.num_gpus or 0)
        raise ValueError(f"num_gpus is of each rank: say num_gpus = 1, tensor_parallel = {n}")
    if 0 < (settings.num_gpus or 0) <= 0.5 and not alone:
        # Ray packs such parts onto one GPU, where NCCL takes a single rank.
        raise ValueError("num_gpus: ranks can't share a GPU; with tensor_parallel say num_gpus = 1")
    if settings.sleep_weights == "host" and not on_gpu:
        raise ValueError("sleep_weights = host needs num_gpus: on a CPU they are there already")
    if settings.sleep_weights == "host" and not alone:
        raise ValueError("sleep_weights: ranks that share a model can only drop their weights")
    if settings.quantization != "none" and names_gguf(settings.path):
        raise ValueError(
            "quantization: the weights of a GGUF file are quantized already; leave it out, or name "
            "the original model"
        )
    if settings.limits.kv_dtype == "fp8" and not on_gpu:
        raise ValueError("kv_dtype = fp8 needs num_gpus: a CPU does not read it")
    if settings.limits.async_scheduling and settings.limits.draft_tokens:
        raise ValueError("async_scheduling: what is drafted follows what was drawn; say one of two")
    if settings.limits.max_loras and not alone:
        raise ValueError("max_loras: ranks that share a model take no adapters of requests")
    _check_drafts(settings)
    folders = {
        "cache-disk": settings.limits.cache_disk,
        "slot-save-path": settings.limits.slot_save_path,
    }
    for name, folder in folders.items():
        if folder is not None and (on_gpu or not alone):
            raise ValueError(
                f"{name}: it is for a model on a CPU, in one rank; say tensor_parallel = 1 and "
                f"no num_gpus, or leave {name} out"
            )
        if folder is not None and not folder.startswith(("/", "~")):
            raise ValueError(f"{name}: say a path that begins with / or ~")
    if settings.limits.pull_prefixes and (on_gpu or not alone):
        raise ValueError("pull-prefixes: so far it is for a model on a CPU, in one rank")
    _check_room(settings.limits)
    if settings.sleep_idle_s is not None and settings.sleep_idle_s <= 0:
        raise ValueError("sleep_idle_s: must be more than 0 seconds")


def _check_drafts(settings: ModelSettings) -> None:
    limits, drafts = settings.limits, "model-draft" if settings.draft_model else "spec-type"
    if settings.draft_model is not None and settings.spec_type is not None:
        raise ValueError("model-draft and spec-type: one of the two drafts")
    if settings.has_draft and settings.tensor_parallel > 1:
        raise ValueError(f"{drafts}: ranks can't share what drafts; say one of the two")
    if settings.has_draft and not limits.draft_tokens:
        raise ValueError(f"{drafts} drafts nothing with draft-max = 0")
    if settings.spec_type is not None and names_gguf(settings.path):
        raise ValueError("spec-type: MTP heads in GGUF files are not read: name the original model")
    if not settings.has_draft and (limits.draft_min or limits.draft_p_min):
        raise ValueError(
            "draft-min and draft-p-min are of a draft model or head: say model-draft or spec-type"
        )
    if limits.draft_min > limits.draft_tokens:
        raise ValueError("draft-min is over draft-max")


def _check_room(limits: EngineLimits) -> None:
    """Checks that the context fits, if the settings give the number of pages."""
    n_pages, context = limits.n_pages, limits.context_length
    if n_pages and context and context > n_pages * limits.page_size:
        raise ValueError(
            f"context_length: {context} tokens do not fit into {n_pages} pages of "
            f"{limits.page_size} tokens"
        )


APPLICATION_PREFIX = "model-"


def application_name(model: str) -> str:
    return APPLICATION_PREFIX + re.sub(r"[^A-Za-z0-9._-]", "_", model)


def is_model_application(name: str) -> bool:
    return name.startswith(APPLICATION_PREFIX)
