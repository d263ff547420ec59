"""The request fields that OpenAI's endpoints share. Each is honoured or refused by name."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from deployments.contract.errors import refused
from deployments.ingress.generation.plan import PlanOptions
from deployments.ingress.http.schema import (
    MAX_LOGIT_BIASES,
    MAX_STOPS,
    ModelName,
    StopString,
    Strict,
    Switch,
    TokenId,
)

MAX_CHOICES = 128
MAX_BAD_WORDS = 256
MAX_STOP_TOKEN_IDS = 1024
CITATIONS = ("url_citation", "file_citation", "container_file_citation")

Penalty = Annotated[float, Field(ge=-2, le=2)]
StopStrings = Annotated[list[StopString], Field(max_length=MAX_STOPS)]
Identifier = Annotated[str, Field(max_length=512)]
MetadataName = Annotated[str, Field(max_length=64)]
BadWord = Annotated[str, Field(min_length=1, max_length=1024)]
TopLogprobs = Annotated[int, Field(ge=0, le=20)]
Verbosity = Literal["low", "medium", "high"]  # a hint, for templates that know it
Bias = Annotated[float, Field(ge=-100, le=100)]


def _only_citations(annotations: list[JsonValue]) -> list[JsonValue]:
    for annotation in annotations:
        kind = annotation.get("type") if isinstance(annotation, dict) else None
        if kind not in CITATIONS:
            raise ValueError(f"may only be of the types {', '.join(CITATIONS)}")
    return annotations


# Of an answer that another server made of a search. They are no part of the prompt.
Citations = Annotated[list[JsonValue], AfterValidator(_only_citations)]


class CacheOptions(Strict):
    """Cache hints: every prefix is cached, for as long as there is room."""

    mode: Literal["implicit", "explicit"] | None = None
    ttl: Identifier | None = None
    prewarm: Literal[False] | None = None
    comparison_response_id: None = None


class CommonFields(Strict):
    """The fields of every endpoint that generates."""

    model: ModelName = None
    stream: Switch = None
    stop: StopString | StopStrings | None = None
    ignore_eos: Switch = None
    priority: Annotated[int, Field(ge=-(2**31), lt=2**31)] | None = None  # lower runs earlier
    cache_salt: Annotated[str, Field(min_length=1, max_length=1024)] | None = None

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=2)] | None = None

    # Identity, billing and cache hints: they do not change the answer.
    user: Identifier | None = None
    safety_identifier: Identifier | None = None
    prompt_cache_key: Identifier | None = None
    prompt_cache_retention: Literal["in_memory", "in-memory", "24h"] | None = None
    prompt_cache_options: CacheOptions | None = None
    metadata: Annotated[dict[MetadataName, Identifier], Field(max_length=16)] | None = None
    service_tier: (
        Literal["auto", "default", "flex", "scale", "priority", "fast", "ultrafast"] | None
    ) = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def plan_options(self) -> PlanOptions:
        return PlanOptions(
            stops=self.stops,
            ignore_eos=bool(self.ignore_eos),
            cache_salt=self.cache_salt or "",
            priority=self.priority or 0,
        )


class StreamOptions(Strict):
    include_usage: Switch = None
    continuous_usage_stats: Switch = None
    include_obfuscation: Literal[False] | None = None


class GenerationFields(CommonFields):
    """The fields of the endpoints that answer with choices."""

    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=MAX_STOP_TOKEN_IDS)] | None = None
    include_stop_str_in_output: Switch = None
    skip_special_tokens: Switch = None
    bad_words: Annotated[list[BadWord], Field(max_length=MAX_BAD_WORDS)] | None = None
    logit_bias: Annotated[dict[str, Bias], Field(max_length=MAX_LOGIT_BIASES)] | None = None

    @model_validator(mode="after")
    def _fields_agree(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise refused("`stream_options` requires `stream`: true", "stream_options")
        limit = self.token_limit
        if limit is not None and (self.min_tokens or 0) > limit:
            raise refused(f"`min_tokens` must not exceed the limit of {limit} tokens", "min_tokens")
        return self

    @property
    def token_limit(self) -> int | None:
        return self.max_tokens

    @property
    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    @property
    def wants_running_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.continuous_usage_stats)
