"""The families of models that see: a file each, and a line here."""

from transformers import PretrainedConfig, PreTrainedModel

from deployments.engine.media.families.family import MediaFamily
from deployments.engine.media.families.llava import LLAVA

MEDIA_FAMILIES = {family.model_class: family for family in (LLAVA,)}
_CONFIGS = frozenset(model_class.config_class for model_class in MEDIA_FAMILIES)


def media_family_of(model: PreTrainedModel) -> MediaFamily | None:
    """The family of a model; None: it reads text, or is not known."""
    return MEDIA_FAMILIES.get(type(model))


def can_see(config: PretrainedConfig) -> bool:
    """Whether models with such a config are of a family that sees."""
    return type(config) in _CONFIGS
