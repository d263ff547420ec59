"""The table of families that have a fused form: the parts in which their layers differ."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformers import (
    LlamaForCausalLM,
    MistralForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

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


_FAMILIES = (
    # Llama, and all that has its layers under its name.
    Family(LlamaForCausalLM),
    # Mistral: one window for all layers, or none.
    Family(MistralForCausalLM, window=lambda attention: attention.config.sliding_window),
    # Qwen 2 and 2.5: biases on queries, keys and values; the upper layers may have windows.
    Family(Qwen2ForCausalLM, window=lambda attention: attention.sliding_window),
    # Qwen 3: queries and keys are normed; the upper layers may have windows, but not those of
    # Qwen 3 VL.
    Family(
        Qwen3ForCausalLM,
        window=lambda attention: getattr(attention, "sliding_window", None),
        head_norms=lambda attention: (attention.q_norm, attention.k_norm),
    ),
)
FAMILIES = {family.model_class: family for family in _FAMILIES}
_CONFIGS = frozenset(model_class.config_class for model_class in FAMILIES)


def family_of(model: PreTrainedModel) -> Family | None:
    """The family of a model; None: it has no fused form."""
    return FAMILIES.get(type(model))


def is_fusable(config: PretrainedConfig) -> bool:
    """Whether models with such a config have a fused form, unless their parts are unusual."""
    return type(config) in _CONFIGS
