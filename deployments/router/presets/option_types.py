"""Types of single options: replicas by load, an adapter, names, dialects, models."""

from typing import Annotated

from pydantic import AfterValidator, Field

from deployments.contract.outputs import ModelTask, Pooling
from deployments.contract.served_adapters import MAX_SCALE, NAME, NAME_WORDS
from deployments.model.settings import Autoscaling
from deployments.router.presets.paths import printable_name
from deployments.router.presets.strict_options import Ini, StrictOptions, Unset
from deployments.router.presets.values import embed_only, rerank_only
from deployments.text.dialects.registry import DIALECTS

SCALING = Autoscaling()


class ScalingOptions(StrictOptions):
    """Options of Serve's autoscaling, which goes by what the engines say of themselves."""

    min_replicas: int = Field(
        default=SCALING.min_replicas,
        ge=0,
        description="Replicas without any load. 0 lets the model scale to none",
    )
    max_replicas: int = Field(
        default=SCALING.max_replicas, ge=1, description="Replicas under any load"
    )
    target_tokens: int = Field(
        default=SCALING.target_tokens,
        ge=1,
        description="Tokens of running and waiting sequences that one replica should have",
    )
    target_usage: float = Field(
        default=SCALING.target_usage,
        gt=0,
        le=1,
        description="Share of its pages that one replica should hold",
    )
    upscale_delay_s: Annotated[float, Ini(("upscale-delay", "upscale-delay-s"))] = Field(
        default=SCALING.upscale_delay_s,
        ge=0,
        description="Seconds of load before a replica is added",
    )
    downscale_delay_s: Annotated[float, Ini(("downscale-delay", "downscale-delay-s"))] = Field(
        default=SCALING.downscale_delay_s,
        ge=0,
        description="Seconds of calm before a replica is removed",
    )


class AdapterOptions(StrictOptions):
    path: str = Field(min_length=1, description="Folder with an adapter_config.json")
    scale: float = 1.0


def _adapter_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name of an adapter: it must be {NAME_WORDS}")
    return name


class ServedAdapterOptions(StrictOptions):
    name: Annotated[str, AfterValidator(_adapter_name)]
    path: str = Field(min_length=1, description="Folder with an adapter_config.json")
    scale: float = Field(default=1.0, ge=-MAX_SCALE, le=MAX_SCALE)


def adapter_from_path(value: object) -> object:
    return {"path": value, "scale": 1.0} if isinstance(value, str) else value


def known_dialect(name: str) -> str:
    if name and name not in DIALECTS:
        raise ValueError(f"must be one of {', '.join(sorted(DIALECTS))}")
    return name


Model = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(min_length=1), AfterValidator(printable_name)]
# A question that can stand on a button.
Starter = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(printable_name)]
Dialect = Annotated[str, AfterValidator(known_dialect)]


Task = Annotated[
    ModelTask | None,
    Ini(("task",), unset="auto"),
    Ini(("embeddings", "embedding", "LLAMA_ARG_EMBEDDINGS"), read=embed_only),
    Ini(("reranking", "rerank", "LLAMA_ARG_RERANKING"), read=rerank_only),
    Unset("what its files are made for"),
    Field(
        description=(
            "What the model answers with: tokens (`generate`), vectors (`embed`), a score for a "
            "pair of texts (`score`) or its labels (`classify`). `embeddings = true` is `embed`, "
            "`reranking = true` is `score`"
        )
    ),
]
PoolingOption = Annotated[
    Pooling | None,
    Ini(("pooling", "LLAMA_ARG_POOLING"), unset="auto"),
    Unset("as its files say"),
    Field(
        description="What vectors are made of: the `last` token, `cls`, the `mean`, or `none`: "
        "one for each token"
    ),
]
