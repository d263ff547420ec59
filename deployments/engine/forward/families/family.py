"""The parts in which the layers of one family of models differ from those of another."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformers import PreTrainedModel

Module = Any  # a torch module whose submodules are read by name, which its type does not declare


def _none(attention: Module) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Family:
    """Layers of attention and a gated feed-forward, each after an RMSNorm. The functions read an
    attention layer.

    model_class: without its subclasses, which may compute something else under the same names.
    window: its sliding window, in tokens; None: it attends to all.
    head_norms: its norms of queries and of keys, each over one head.
    """

    model_class: type[PreTrainedModel]
    window: Callable[[Module], int | None] = _none
    head_norms: Callable[[Module], tuple[Module, Module] | None] = _none
