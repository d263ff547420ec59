"""The families of models that see or hear: a file each, and a line here."""

from transformers import PretrainedConfig, PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES

from deployments.engine.media.families.family import MediaFamily
from deployments.engine.media.families.gemma3 import GEMMA3
from deployments.engine.media.families.gemma3n import GEMMA3N
from deployments.engine.media.families.gemma4 import GEMMA4
from deployments.engine.media.families.idefics3 import IDEFICS3, SMOLVLM
from deployments.engine.media.families.internvl import INTERNVL
from deployments.engine.media.families.llama4 import LLAMA4
from deployments.engine.media.families.llava import LLAVA
from deployments.engine.media.families.llava_next import LLAVA_NEXT, LLAVA_ONEVISION
from deployments.engine.media.families.mistral3 import MISTRAL3
from deployments.engine.media.families.qwen_vl import (
    QWEN2_5_VL,
    QWEN2_VL,
    QWEN3_5,
    QWEN3_5_MOE,
    QWEN3_VL,
    QWEN3_VL_MOE,
)
from deployments.engine.media.families.whisper_audio import QWEN2_AUDIO, VOXTRAL

_FAMILIES = (
    *(LLAVA, LLAVA_NEXT, LLAVA_ONEVISION, MISTRAL3, IDEFICS3, SMOLVLM, INTERNVL),
    *(QWEN2_VL, QWEN2_5_VL, QWEN3_VL, QWEN3_VL_MOE, QWEN3_5, QWEN3_5_MOE),
    *(LLAMA4, GEMMA3, GEMMA3N, GEMMA4, QWEN2_AUDIO, VOXTRAL),
)
MEDIA_FAMILIES = {family.class_name: family for family in _FAMILIES}


def media_family_of(model: PreTrainedModel) -> MediaFamily | None:
    """The family of a model; None: it reads text, or is not known."""
    return MEDIA_FAMILIES.get(type(model).__name__)


def takes_media(config: PretrainedConfig) -> bool:
    """Whether models with such a config are of a family that sees or hears. Files may have the
    language model of one alone, and name it."""
    name = MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES.get(config.model_type)
    named = getattr(config, "architectures", None)
    return name in MEDIA_FAMILIES and (not named or name in named)
