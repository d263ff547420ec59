"""POST /tokenize and /detokenize: a model's tokenizer.

They are vLLM's paths, too. /detokenize answers in both forms; what else /tokenize takes is not
llama-server's, so its route is made where the application is.
"""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, model_validator

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.plan import check_ids
from deployments.ingress.http.schema import (
    MAX_TOKENIZED_CHARACTERS,
    LongItems,
    ModelName,
    Strict,
    TokenId,
)
from deployments.ingress.http.validation import parse
from deployments.ingress.routes.service import UnaryOperation, recalls_nothing
from deployments.llama.completion.prompts import mixed_ids
from deployments.llama.completion.schema import MAX_TEXTS, given_fields, texts_in
from deployments.text.tokens.tokenizer import TextTokenizer


class TokenizeRequest(Strict):
    model: ModelName = None
    content: str | LongItems[str | TokenId]
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False

    @property
    def is_heavy(self) -> bool:
        return False  # what is long is in the body

    @property
    def parts(self) -> Sequence[str | int]:
        return [self.content] if isinstance(self.content, str) else self.content

    @model_validator(mode="after")
    def _is_not_too_long(self) -> Self:
        length = sum(len(part) if isinstance(part, str) else 1 for part in self.parts)
        if length > MAX_TOKENIZED_CHARACTERS:
            message = f"`content` must have at most {MAX_TOKENIZED_CHARACTERS} characters and ids"
            raise refused(message, "content")
        if isinstance(self.content, list) and texts_in(self.content) > MAX_TEXTS:
            raise refused(f"`content` must have at most {MAX_TEXTS} texts", "content")
        return self


class DetokenizeRequest(Strict):
    model: ModelName = None
    tokens: Annotated[LongItems[TokenId], Field(max_length=1 << 20)]

    @property
    def is_heavy(self) -> bool:
        return False


def parse_tokenize(body: object) -> TokenizeRequest:
    return parse(TokenizeRequest, given_fields(body))


def parse_detokenize(body: object) -> DetokenizeRequest:
    return parse(DetokenizeRequest, given_fields(body))


def tokenize(request: TokenizeRequest, card: ModelCard, tokenizer: TextTokenizer) -> object:
    encode = tokenizer.encode if request.parse_special else tokenizer.encode_literally
    ids = mixed_ids(request.parts, encode, request.add_special)
    check_ids(ids, card, "content")
    if not request.with_pieces:
        return {"tokens": ids}
    return {
        "tokens": [
            {"id": token_id, "piece": piece(tokenizer.token_bytes(token_id))} for token_id in ids
        ]
    }


def piece(raw: bytes) -> str | list[int]:
    """The text of a token, or its bytes if it is a part of a character."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)


def detokenize(request: DetokenizeRequest, card: ModelCard, tokenizer: TextTokenizer) -> object:
    check_ids(request.tokens, card, "tokens")
    text = tokenizer.decode(request.tokens, skip_special_tokens=False)
    return {"content": text, "prompt": text}


DETOKENIZE = UnaryOperation(
    name="detokenize",
    path="/detokenize",
    body=DetokenizeRequest,
    parse=parse_detokenize,
    answer=recalls_nothing(detokenize),
)
