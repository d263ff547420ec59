"""The body of POST /v1/completions: prompts as text or ids, every field honoured or refused."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from deployments.ingress.errors import refused
from deployments.ingress.validation import parse, refuse_unsupported
from deployments.openai.fields import GenerationFields, Switch, TokenId

DEFAULT_MAX_TOKENS = 16  # OpenAI's own default on this endpoint
MOST_SEQUENCES = 1024

# Known but not served: null and the values listed ask for what is done anyway.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "best_of": (1,),
    "nvext": (),
    "response_format": ({"type": "text"},),
    "store": (False,),
    "structured_outputs": (),
    "suffix": ("",),
}

Text = Annotated[str, Field(min_length=1)]
Ids = Annotated[list[TokenId], Field(min_length=1)]
Prompt = (
    Text
    | Annotated[list[Text], Field(min_length=1)]
    | Ids
    | Annotated[list[Ids], Field(min_length=1)]
)


class CompletionRequest(GenerationFields):
    prompt: Prompt
    echo: Switch = None
    logprobs: Annotated[int, Field(ge=0, le=5)] | None = None

    @property
    def token_limit(self) -> int | None:
        return DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def prompts(self) -> list[str | list[int]]:
        """One entry a prompt, whichever of the four forms they came in."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        ids = [one for one in self.prompt if isinstance(one, int)]
        return [ids] if ids else [one for one in self.prompt if not isinstance(one, int)]

    @model_validator(mode="after")
    def _completion_fields_agree(self) -> Self:
        if self.echo and self.logprobs is not None:
            message = "`logprobs` with `echo` is not supported by this server"
            raise refused(message, "logprobs")
        if len(self.prompts) * (self.n or 1) > MOST_SEQUENCES:
            raise refused(f"`prompt` asks for more than {MOST_SEQUENCES} choices", "prompt")
        return self


def parse_completion(body: object) -> CompletionRequest:
    return parse(CompletionRequest, refuse_unsupported(body, NEUTRAL))
