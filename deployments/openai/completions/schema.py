"""The body of POST /v1/completions: prompts as text or ids, every field honoured or refused."""

from dataclasses import replace
from functools import cached_property
from typing import Annotated, Self

from pydantic import Field, model_validator

from deployments.contract.errors import refused
from deployments.ingress.generation.plan import PlanOptions
from deployments.ingress.http.schema import Items, Switch, TokenIds
from deployments.ingress.http.validation import parse, refuse_unsupported
from deployments.openai.fields.common import MAX_CHOICES
from deployments.openai.fields.vllm_fields import NEUTRAL as COMMON
from deployments.openai.fields.vllm_fields import VllmFields

DEFAULT_MAX_TOKENS = 16  # OpenAI's own default on this endpoint
MAX_LIGHT_SEQUENCES = 64  # more take long to prepare
MAX_SEQUENCES = 1024

# Known but not supported: only null and the values listed, which change nothing, are accepted.
NEUTRAL: dict[str, tuple[object, ...]] = {
    **COMMON,
    "thinking_token_budget": (),
}

Text = Annotated[str, Field(min_length=1)]
Prompt = (
    Text
    | Annotated[Items[Text], Field(min_length=1)]
    | TokenIds
    | Annotated[Items[TokenIds], Field(min_length=1)]
)


class CompletionRequest(VllmFields):
    """`suffix`: the answer is the text before it. `max_tokens` 0 only scores the prompt. Of
    `best_of` choices the `n` with the highest log-probability a token are the answer.
    """

    prompt: Prompt
    suffix: str | None = None
    echo: Switch = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    best_of: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    add_special_tokens: Switch = None
    no_stop_trim: Switch = None  # Dynamo's name for include_stop_str_in_output

    @property
    def token_limit(self) -> int | None:
        return DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def generated(self) -> int:
        """The choices that are made for each prompt."""
        return self.best_of or self.n or 1

    @property
    def plan_options(self) -> PlanOptions:
        return replace(
            super().plan_options,
            choices=self.generated,
            scores_end=True,  # clients that score continuations expect one for each token
        )

    @property
    def chooses(self) -> bool:
        """Whether the answer has fewer choices than are made."""
        return self.generated > (self.n or 1)

    @cached_property
    def prompts(self) -> list[str | list[int]]:
        """One entry for each prompt, for all four forms of `prompt`."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        ids = [token_id for token_id in self.prompt if isinstance(token_id, int)]
        return [ids] if ids else [prompt for prompt in self.prompt if not isinstance(prompt, int)]

    @property
    def is_heavy(self) -> bool:
        """Whether preparing takes long, however short the body is."""
        sequences = len(self.prompts) * self.generated
        return (
            self.structure is not None
            or bool(self.dry_multiplier)
            or sequences > MAX_LIGHT_SEQUENCES
        )

    @property
    def token_data(self) -> list[int] | None:
        return self.nvext.token_data if self.nvext is not None else None

    @property
    def echoes_logprobs(self) -> bool:
        return bool(self.echo) and self.logprobs is not None

    @model_validator(mode="after")
    def _choices_agree(self) -> Self:
        if self.generated < (self.n or 1):
            raise refused("`best_of` must be at least `n`", "best_of")
        if self.chooses and self.stream:
            message = "`best_of` over `n` cannot be combined with `stream`: the best are known last"
            raise refused(message, "best_of")
        if len(self.prompts) * self.generated > MAX_SEQUENCES:
            raise refused(f"`prompt` must give at most {MAX_SEQUENCES} choices in all", "prompt")
        return self

    @model_validator(mode="after")
    def _suffix_agrees(self) -> Self:
        if self.suffix and self.echo:
            raise refused("`suffix` cannot be combined with `echo`: true", "suffix")
        if self.suffix and not all(isinstance(prompt, str) for prompt in self.prompts):
            raise refused("`suffix` requires a `prompt` of text", "suffix")
        return self

    @model_validator(mode="after")
    def _join_stop_trim(self) -> Self:
        if self.no_stop_trim is None:
            return self
        if self.include_stop_str_in_output not in (None, self.no_stop_trim):
            message = "`no_stop_trim` must equal `include_stop_str_in_output`"
            raise refused(message, "no_stop_trim")
        self.include_stop_str_in_output = self.no_stop_trim
        return self

    @model_validator(mode="after")
    def _token_data_agrees(self) -> Self:
        if self.token_data is not None and (len(self.prompts) > 1 or self.suffix):
            message = "`nvext.token_data` requires a single `prompt` and no `suffix`"
            raise refused(message, "nvext.token_data")
        return self


def parse_completion(body: object) -> CompletionRequest:
    return parse(CompletionRequest, refuse_unsupported(body, NEUTRAL))
