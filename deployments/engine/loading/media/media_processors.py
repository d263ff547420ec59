"""Loads processors of models that see or hear, as far as they are needed here: for images and
sounds, without torchvision, which reads videos, and num2words, which names their times."""

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import transformers
from transformers import (
    AutoImageProcessor,
    ImageProcessingMixin,
    PretrainedConfig,
    ProcessorMixin,
)
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

from deployments.engine.loading.tokenizing.tokenizer_files import read_tokenizer
from deployments.engine.media.encoders import takes_media

log = logging.getLogger(__name__)


def load_processor(path: str, config: PretrainedConfig) -> Any:
    """The processor of a model that sees or hears. None for other models, and where it can't be
    loaded: the model reads text only then."""
    if not takes_media(config):
        return None
    try:
        name = _class_name(path, config)
        if name in STAND_INS:
            return _stand_in(path, name)
        processor = _without_videos(getattr(transformers, name))
        return processor.from_pretrained(
            path, trust_remote_code=False, backend="pil", fix_mistral_regex=True
        )
    except Exception as error:  # it is of any model's files
        log.warning("%s reads text only: its processor can't be loaded: %s", path, error)
        return None


def _class_name(path: str, config: PretrainedConfig) -> str:
    """Returns the name in the model's files, or the one that all models of its type have."""
    for files in (ProcessorMixin.get_processor_dict, ImageProcessingMixin.get_image_processor_dict):
        with suppress(OSError):
            named, _ = files(path)
            if found := named.get("processor_class"):
                return str(found)
    return str(PROCESSOR_MAPPING_NAMES[config.model_type])


def _without_videos(processor: Any) -> Any:
    """The same class for images alone."""
    parts = [name for name in processor.get_attributes() if name != "video_processor"]
    return type(processor.__name__, (processor,), {"get_attributes": lambda *_: parts})


class PixtralProcessor:
    """A stand-in for transformers' own, whose module imports torchvision."""

    def __init__(self, image_processor: Any, tokenizer: Any, fields: Mapping[str, Any]) -> None:
        self.image_processor, self.tokenizer = image_processor, tokenizer
        self.patch_size: int = fields.get("patch_size", 16)
        self.spatial_merge_size: int = fields.get("spatial_merge_size", 1)
        self.image_token: str = fields.get("image_token", "[IMG]")
        self.image_token_id: int = tokenizer.convert_tokens_to_ids(self.image_token)
        self.image_break_token: str = fields.get("image_break_token", "[IMG_BREAK]")
        self.image_end_token: str = fields.get("image_end_token", "[IMG_END]")


class SmolVLMProcessor:
    """A stand-in for transformers' own, which can't be made without num2words."""

    def __init__(self, image_processor: Any, tokenizer: Any, fields: Mapping[str, Any]) -> None:
        self.image_processor, self.tokenizer = image_processor, tokenizer
        self.image_seq_len: int = fields.get("image_seq_len", 169)
        self.image_token: str = getattr(tokenizer, "image_token", "<image>")
        self.image_token_id: int = tokenizer.convert_tokens_to_ids(self.image_token)
        self.fake_image_token: str = getattr(
            tokenizer, "fake_image_token", "<fake_token_around_image>"
        )
        self.global_image_token: str = getattr(tokenizer, "global_image_token", "<global-img>")


StandIn = type[PixtralProcessor] | type[SmolVLMProcessor]
# By the names that `media.rules` knows the classes by.
STAND_INS: Mapping[str, StandIn] = {
    stand_in.__name__: stand_in for stand_in in (PixtralProcessor, SmolVLMProcessor)
}


def _stand_in(path: str, name: str) -> PixtralProcessor | SmolVLMProcessor:
    fields: Mapping[str, Any] = {}
    with suppress(OSError):
        fields, _ = ProcessorMixin.get_processor_dict(path)
    reader = AutoImageProcessor.from_pretrained(path, trust_remote_code=False, backend="pil")
    tokenizer = read_tokenizer(path)
    return STAND_INS[name](reader, tokenizer, fields)
