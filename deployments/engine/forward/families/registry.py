"""The families of models that have a fused form: a file each, and a line here."""

from transformers import PretrainedConfig, PreTrainedModel

from deployments.engine.forward.families.family import Family
from deployments.engine.forward.families.llama import LLAMA
from deployments.engine.forward.families.mistral import MISTRAL
from deployments.engine.forward.families.qwen2 import QWEN2
from deployments.engine.forward.families.qwen3 import QWEN3

FAMILIES = {family.model_class: family for family in (LLAMA, MISTRAL, QWEN2, QWEN3)}
_CONFIGS = frozenset(model_class.config_class for model_class in FAMILIES)


def family_of(model: PreTrainedModel) -> Family | None:
    """The family of a model; None: it has no fused form."""
    return FAMILIES.get(type(model))


def is_fusable(config: PretrainedConfig) -> bool:
    """Whether models with such a config have a fused form, unless their parts are unusual."""
    return type(config) in _CONFIGS
