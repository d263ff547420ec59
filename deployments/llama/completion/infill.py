"""POST /infill: generates the text between two others, with models trained to infill."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, JsonValue

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.model_card import ModelCard
from deployments.ingress.http.schema import Strict
from deployments.ingress.http.validation import parse
from deployments.llama.completion.schema import CompletionFields, given_fields
from deployments.media.prompt_media import PromptMedia
from deployments.text.chat.prompt import Prompt
from deployments.text.infill import fitted_ids
from deployments.text.tokens.tokenizer import TextTokenizer

MAX_FILES = 1024


class Extra(Strict):
    """`time` is when the editor read the file."""

    text: str
    filename: str | None = None
    time: JsonValue = None


class InfillRequest(CompletionFields):
    """`prompt` is the beginning of the text in the middle."""

    input_prefix: str
    input_suffix: str
    input_extra: Annotated[list[Extra], Field(max_length=MAX_FILES)] = Field(default_factory=list)
    prompt: str = ""


def parse_infill(body: object) -> InfillRequest:
    return parse(InfillRequest, given_fields(body))


def infill_prompts(
    request: InfillRequest, card: ModelCard, tokenizer: TextTokenizer, media: PromptMedia
) -> list[Prompt]:
    extra = [(file.filename or "filename", file.text) for file in request.input_extra]
    context = card.context_length
    begun: Sequence[int] = ()
    if request.prompt:
        begun = tokenizer.encode(request.prompt, add_special_tokens=False, limit=context)
    room = _room(request.token_limit, context) - len(begun)
    ids = fitted_ids(tokenizer, request.input_prefix, request.input_suffix, extra, room)
    if ids is None:
        message = f"Infill is not supported by the model {card.name!r}: it has no tokens for it"
        raise Refused.of_kind(ErrorKind.NOT_SUPPORTED, message)
    return [Prompt(ids=[*ids, *begun])]


def _room(limit: int, context: int) -> int:
    """The most tokens of a prompt: at least half of the context, and room for the answer."""
    answer = context // 4 if limit < 0 else min(limit, context // 2)
    return context - 1 - answer
