"""Gemma 3: every image has as many vectors, which attend to each other both ways."""

from deployments.engine.media.families.family import Bidirectional, MediaFamily, image_features

GEMMA3 = MediaFamily(
    "Gemma3ForConditionalGeneration",
    image_features("pixel_values"),
    bidirectional=lambda _: Bidirectional.EVERYWHERE,
)
