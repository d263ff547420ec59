"""The shared parts of all protocols' schemas: strictness, limits and types."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import ErrorDetails, InitErrorDetails

MAX_STOPS = 32
MAX_TOOLS = 512
MAX_LOGIT_BIASES = 4096  # each is added in every step
MAX_TOKENIZED_CHARACTERS = 1 << 21  # of a text: tokenizers need hundreds of bytes for each
PIECE = 1 << 14  # items

# Patterns of strings. A refusal says them in words.
NAME = r"^[a-zA-Z0-9_-]{1,64}$"
LONG_NAME = r"^[a-zA-Z0-9_-]{1,128}$"
UUID = r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
SHA256 = r"^[0-9a-f]{64}$"
NO_ZERO_BYTE = r"^[^\x00]*$"  # Postgres has no text with one
IMAGE_TYPE = "^image/"
PATTERNS: Mapping[str, str] = MappingProxyType(
    {
        NAME: "1 to 64 letters of ASCII, digits, underscores or hyphens",
        LONG_NAME: "1 to 128 letters of ASCII, digits, underscores or hyphens",
        UUID: "a UUID in lower case",
        SHA256: "64 hexadecimal digits in lower case",
        NO_ZERO_BYTE: "a string without the character U+0000",
        IMAGE_TYPE: "a type of images, such as image/png",
    }
)


def in_pieces(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    """Validates a list in pieces, between which other threads run."""
    if not isinstance(value, list) or len(value) <= PIECE:
        return validate(value)
    validated: list[object] = []
    for start in range(0, len(value), PIECE):
        try:
            validated += validate(value[start : start + PIECE])
        except ValidationError as error:
            moved = [_moved(detail, start) for detail in error.errors()]
            raise ValidationError.from_exception_data(error.title, moved) from None
    return validated


def _moved(detail: ErrorDetails, start: int) -> InitErrorDetails:
    index, *path = detail["loc"]
    assert isinstance(index, int)
    return InitErrorDetails(
        type=detail["type"],
        loc=(start + index, *path),
        input=detail["input"],
        ctx=detail.get("ctx", {}),
    )


ItemT = TypeVar("ItemT")
Value = TypeVar("Value")
# A list without a limit. Validation ends at the first wrong item: there may be a million.
Items = Annotated[list[ItemT], Field(fail_fast=True)]
# The same for what may be a million numbers or short texts.
LongItems = Annotated[list[ItemT], Field(fail_fast=True), WrapValidator(in_pieces)]
Switch = bool | None
# "" names no model: clients that know one model only send it.
MAX_NAME = 1024  # characters of a model's
ModelName = Annotated[
    str | None,
    Field(max_length=MAX_NAME),
    BeforeValidator(lambda name: None if name == "" else name),
]
TokenId = Annotated[int, Field(ge=0)]
TokenIds = Annotated[LongItems[TokenId], Field(min_length=1)]
TextsAndIds = Annotated[LongItems[str | TokenId], Field(min_length=1)]
StopString = Annotated[str, Field(min_length=1, max_length=1024)]


def without_nulls(value: Value) -> Value | dict[str, object]:
    """Leaves out null fields: clients send back answers that SDKs printed with nulls."""
    if not isinstance(value, dict):
        return value
    return {name: inner for name, inner in value.items() if inner is not None}


class Strict(BaseModel):
    """No coercion and no unknown field; null is the same as a missing field."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
