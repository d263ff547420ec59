"""The families of models that see: a file each, and a line here."""

from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from deployments.engine.media.families.family import MediaFamily
from deployments.engine.media.families.gemma3 import GEMMA3
from deployments.engine.media.families.gemma4 import GEMMA4
from deployments.engine.media.families.idefics3 import IDEFICS3, SMOLVLM
from deployments.engine.media.families.internvl import INTERNVL
from deployments.engine.media.families.llava import LLAVA
from deployments.engine.media.families.llava_next import LLAVA_NEXT, LLAVA_ONEVISION
from deployments.engine.media.families.mistral3 import MISTRAL3

_FAMILIES = (
    LLAVA,
    LLAVA_NEXT,
    LLAVA_ONEVISION,
    MISTRAL3,
    IDEFICS3,
    SMOLVLM,
    INTERNVL,
    GEMMA3,
    GEMMA4,
)
MEDIA_FAMILIES = {family.class_name: family for family in _FAMILIES}


def media_family_of(model: PreTrainedModel) -> MediaFamily | None:
    """The family of a model; None: it reads text, or is not known."""
    return MEDIA_FAMILIES.get(type(model).__name__)


def can_see(config: PretrainedConfig) -> bool:
    """Whether models with such a config are of a family that sees."""
    return MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.get(config.model_type) in MEDIA_FAMILIES
