"""The types of llama-server's own request fields, for every protocol that accepts them."""

from typing import Annotated

from pydantic import AliasChoices, Field

from deployments.contract.served_adapters import MAX_SCALE
from deployments.ingress.http.schema import Strict, Switch

MAX_INT32 = 2**31 - 1
MAX_DRY_BREAKERS = 64
MAX_LORA_SCALES = 512

# Known but not supported: only null and the values listed, which change nothing, are accepted.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "adaptive_target": (-1, -1.0),
    "adaptive_decay": (0.9,),
    "grammar_lazy": (False,),
    "grammar_triggers": ([],),
    "n_cache_reuse": (0,),
    "n_discard": (0,),
    "preserved_tokens": ([],),
    "verbose": (False,),
}

Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0)]
AtLeast0 = Annotated[int, Field(ge=0, le=MAX_INT32)]
AtLeastMinus1 = Annotated[int, Field(ge=-1, le=MAX_INT32)]
Text = Annotated[str, Field(min_length=1, max_length=1024)]
Breakers = Annotated[list[Text], Field(min_length=1, max_length=MAX_DRY_BREAKERS)]
Names = str | Annotated[list[str], Field(max_length=32)]
PingInterval = Annotated[int, Field(ge=-1, le=3600)]  # seconds; -1 is never
TYPICAL = AliasChoices("typical_p", "typ_p")  # the second is its name as a sampler


class Hints(Strict):
    """Hints about sampling on the backend and speculative decoding. They do not change the tokens;
    the model's settings decide.
    """

    backend_sampling: Switch = None
    draft_most: AtLeast0 | None = Field(default=None, alias="speculative.n_max")
    draft_least: AtLeast0 | None = Field(default=None, alias="speculative.n_min")
    draft_probability: Share | None = Field(default=None, alias="speculative.p_min")
    drafters: Names | None = Field(default=None, alias="speculative.types")


class LoraScale(Strict):
    id: AtLeast0
    scale: Annotated[float, Field(ge=-MAX_SCALE, le=MAX_SCALE)]


class LoraFields(Strict):
    """The adapters of a request, by the ids of `/lora-adapters`; one that is left out has none of
    its effect. Without the field the name of the model says which they are.
    """

    lora: Annotated[list[LoraScale], Field(max_length=MAX_LORA_SCALES)] | None = None

    @property
    def lora_scales(self) -> list[tuple[int, float]] | None:
        return None if self.lora is None else [(entry.id, entry.scale) for entry in self.lora]


def ping_interval_s(asked: int | None, default: float) -> float | None:
    if asked is None:
        return default
    return asked if asked > 0 else None
