"""llama-server's own fields, which it accepts on OpenAI's routes as well."""

from typing import Annotated, Literal, Self

from pydantic import AliasChoices, Field, model_validator

from deployments.ingress.http.schema import Strict, Switch
from deployments.openai.fields.response_format import StructureFields
from deployments.wire import refused

HIGHEST = 2**31 - 1
MAX_DRY_BREAKERS = 64

# Known but not supported: only null and the values listed, which change nothing, are accepted.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "adaptive_target": (-1, -1.0),
    "adaptive_decay": (0.9,),
    "grammar_lazy": (False,),
    "grammar_triggers": ([],),
    "lora": ([],),
    "n_cache_reuse": (0,),
    "n_discard": (0,),
    "preserved_tokens": ([],),
    "verbose": (False,),
}

Share = Annotated[float, Field(ge=0, le=1)]
Amount = Annotated[float, Field(ge=0)]
AtLeast0 = Annotated[int, Field(ge=0, le=HIGHEST)]
AtLeastMinus1 = Annotated[int, Field(ge=-1, le=HIGHEST)]
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


class LlamaCppFields(Hints, StructureFields):
    """Null stands for the model's default. `id_slot` and `n_keep` have no effect: slots are alike,
    and no token is ever discarded.
    """

    n_predict: AtLeastMinus1 | None = None
    dynatemp_range: Amount | None = None
    dynatemp_exponent: Amount | None = None
    typical_p: Share | None = Field(default=None, validation_alias=TYPICAL)
    top_n_sigma: Annotated[float, Field(ge=-1)] | None = None
    xtc_probability: Share | None = None
    xtc_threshold: Share | None = None
    repeat_last_n: AtLeastMinus1 | None = None
    repeat_penalty: Annotated[float, Field(gt=0)] | None = None
    dry_multiplier: Amount | None = None
    dry_base: Annotated[float, Field(ge=1)] | None = None
    dry_allowed_length: AtLeast0 | None = None
    dry_penalty_last_n: AtLeastMinus1 | None = None
    dry_sequence_breakers: Breakers | None = None
    mirostat: Literal[0, 1, 2] | None = None
    mirostat_tau: Amount | None = None
    mirostat_eta: Amount | None = None
    samplers: Names | None = None
    min_keep: AtLeast0 | None = None
    cache_prompt: Switch = None
    id_slot: AtLeastMinus1 | None = None
    n_keep: AtLeastMinus1 | None = None
    sse_ping_interval: PingInterval | None = None

    @model_validator(mode="after")
    def _join_llamacpp_names(self) -> Self:
        if self.sse_ping_interval == 0:
            raise refused("`sse_ping_interval` must be -1, or 1 or more", "sse_ping_interval")
        if None not in (self.repeat_penalty, self.repetition_penalty):
            message = "`repeat_penalty` cannot be combined with `repetition_penalty`"
            raise refused(message, "repeat_penalty")
        if self.n_predict is not None and self.n_predict >= 0:
            if not {*self.limits} <= {None, self.n_predict}:
                raise refused("`n_predict` must equal the other names of this limit", "n_predict")
            self.max_tokens = self.n_predict
        return self

    @property
    def limits(self) -> tuple[int | None, ...]:
        """The limit of tokens, by each of its names."""
        return (self.max_tokens,)

    def ping_interval_s(self, default: float) -> float | None:
        return ping_interval_s(self.sse_ping_interval, default)


def ping_interval_s(asked: int | None, default: float) -> float | None:
    if asked is None:
        return default
    return asked if asked > 0 else None
