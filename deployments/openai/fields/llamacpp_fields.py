"""llama-server's own fields, which it accepts on OpenAI's routes as well."""

from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from deployments.contract.errors import refused
from deployments.ingress.generation.plan import PlanOptions
from deployments.ingress.http.schema import Switch
from deployments.ingress.llamacpp.field_types import (
    TYPICAL,
    Amount,
    AtLeast0,
    AtLeastMinus1,
    Breakers,
    Hints,
    LoraFields,
    Names,
    PingInterval,
    Share,
    ping_interval_s,
)
from deployments.openai.fields.response_format import StructureFields


class LlamaCppFields(Hints, LoraFields, StructureFields):
    """Null stands for the model's default. `id_slot` names what can be saved, where a model saves
    slots. `n_keep` has no effect: no token is ever discarded.
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

    @property
    def plan_options(self) -> PlanOptions:
        return replace(
            super().plan_options,
            choices=self.n or 1,
            max_tokens=self.token_limit,
            min_tokens=self.min_tokens or 0,
            include_stop=bool(self.include_stop_str_in_output),
            stop_token_ids=tuple(self.stop_token_ids or ()),
            skip_special_tokens=self.skip_special_tokens is not False,
            is_cached=self.cache_prompt is not False,
            id_slot=-1 if self.id_slot is None else self.id_slot,
            lora=self.lora_scales,
        )

    def ping_interval_s(self, default: float) -> float | None:
        return ping_interval_s(self.sse_ping_interval, default)
