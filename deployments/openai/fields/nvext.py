"""The `nvext` object: NVIDIA's extensions in Dynamo's first and present releases.

Fields that another field of the request also sets are merged with it. Fields that control Dynamo's
own workers are refused by name.
"""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from deployments.contract.errors import refused
from deployments.ingress.http.schema import Strict, Switch, TokenIds
from deployments.ingress.http.validation import refuse_unsupported

MAX_NAMES = 64
Annotation = Literal["formatted_prompt", "token_ids", "request_id", "timing"]
ExtraField = Literal["timing", "prompt_token_ids", "completion_token_ids", "stop_reason"]
# Known to Dynamo but not supported: only null is accepted.
NOTHING: tuple[object, ...] = ()
ROUTING = {
    "backend_instance_id": NOTHING,
    "decode_worker_id": NOTHING,
    "dp_rank": NOTHING,
    "metadata_upload": NOTHING,
    "prefill_dp_rank": NOTHING,
    "prefill_worker_id": NOTHING,
    "request_timestamp_ms": NOTHING,
    "router": NOTHING,
    "routing_constraints": NOTHING,
}
HINTS: dict[str, tuple[object, ...]] = {
    "latency_sensitivity": NOTHING,
    "osl": NOTHING,
    "speculative_prefill": (False,),
    "strict_priority": NOTHING,
}


def _served(value: object) -> object:
    return refuse_unsupported(value, ROUTING, "nvext") if isinstance(value, dict) else value


def _served_hints(value: object) -> object:
    known = isinstance(value, dict)
    return refuse_unsupported(value, HINTS, "nvext.agent_hints") if known else value


class AgentHints(Strict):
    """`priority` is Dynamo's: the waiting request with the highest runs first."""

    priority: Annotated[int, Field(gt=-(2**31), lt=2**31)] | None = None


class NvExt(Strict):
    ignore_eos: Switch = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=2)] | None = None
    greedy_sampling: Switch = None
    greed_sampling: Switch = None  # Dynamo's name in JSON
    use_raw_prompt: Switch = None
    annotations: Annotated[list[Annotation], Field(max_length=MAX_NAMES)] | None = None
    max_thinking_tokens: Annotated[int, Field(ge=0, lt=2**32)] | None = None
    cache_salt: Annotated[str, Field(max_length=1024)] | None = None  # "" is none
    extra_fields: Annotated[list[ExtraField], Field(max_length=MAX_NAMES)] | None = None
    token_data: TokenIds | None = None
    agent_hints: Annotated[AgentHints, BeforeValidator(_served_hints)] | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.top_k == 0:
            raise refused("`nvext.top_k` must be -1, or 1 or more", "nvext.top_k")
        spellings = {self.greedy_sampling, self.greed_sampling}
        if spellings == {True, False}:
            raise refused(
                "`nvext.greed_sampling` must equal `nvext.greedy_sampling`",
                "nvext.greed_sampling",
            )
        return self

    @property
    def greedy(self) -> bool:
        return bool(self.greedy_sampling or self.greed_sampling)

    @property
    def priority(self) -> int | None:
        """The priority in the terms of the request's `priority`, where the lowest runs first."""
        given = self.agent_hints.priority if self.agent_hints is not None else None
        return None if given is None else -given

    def twins(self) -> dict[str, tuple[str, object]]:
        """The fields that also exist outside `nvext`: by that name, the path here and the value."""
        return {
            "ignore_eos": ("nvext.ignore_eos", self.ignore_eos),
            "top_k": ("nvext.top_k", self.top_k),
            "repetition_penalty": ("nvext.repetition_penalty", self.repetition_penalty),
            "cache_salt": ("nvext.cache_salt", self.cache_salt or None),
            "priority": ("nvext.agent_hints.priority", self.priority),
            "thinking_token_budget": ("nvext.max_thinking_tokens", self.max_thinking_tokens),
        }


ServedNvExt = Annotated[NvExt, BeforeValidator(_served)]
