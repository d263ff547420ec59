"""Overrides methods of transformers' modules, one module at a time, and undoes that."""

from collections.abc import Callable
from typing import Any

from torch import nn


def override(module: nn.Module, method: str, function: Callable[..., Any]) -> None:
    """Has a module call `function`, without itself as an argument, in the place of its method."""
    vars(module)[method] = function


def restore(module: nn.Module, method: str) -> None:
    """Gives a module its own method again."""
    vars(module).pop(method, None)
