"""What a request leaves open."""

from typing import TypeVar

Value = TypeVar("Value")


def given(value: Value | None, default: Value) -> Value:
    return default if value is None else value
