"""What the schemas of all protocols share: how strict they are, and how much a request may ask."""

from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

MAX_STOPS = 32
MAX_TOOLS = 512
MAX_LOGIT_BIASES = 4096  # each is added in every step

ItemT = TypeVar("ItemT")
Value = TypeVar("Value")
# A list without a limit: of a million wrong items one is told, and no more are looked for.
Items = Annotated[list[ItemT], Field(fail_fast=True)]
Switch = bool | None
# What names no model, as clients do who know of one only.
ModelName = Annotated[str | None, BeforeValidator(lambda name: None if name == "" else name)]
TokenId = Annotated[int, Field(ge=0)]
StopString = Annotated[str, Field(min_length=1, max_length=1024)]


def without_nulls(value: Value) -> Value | dict[str, object]:
    """What the SDKs print of an answer may come back: null stands for a field that is not there."""
    if not isinstance(value, dict):
        return value
    return {name: inner for name, inner in value.items() if inner is not None}


class Strict(BaseModel):
    """No coercion and no unknown field; null stands for a field that is not there."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
