"""Gemma 4: images keep their proportions. In the larger models their vectors attend to each other
both ways where there is a window."""

from deployments.engine.media.families.family import Bidirectional, MediaFamily, image_features
from deployments.media.families.described import Described


def bidirectional(config: Described) -> Bidirectional:
    is_vision = config.text_config.use_bidirectional_attention == "vision"
    return Bidirectional.IN_WINDOWS if is_vision else Bidirectional.NOWHERE


GEMMA4 = MediaFamily(
    "Gemma4ForConditionalGeneration",
    image_features("pixel_values", "image_position_ids"),
    bidirectional=bidirectional,
)
