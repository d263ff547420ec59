"""InternVL in the form of transformers: tiles of one size, each of as many vectors."""

from deployments.engine.media.families.family import MediaFamily, image_features

INTERNVL = MediaFamily(
    "InternVLForConditionalGeneration",
    image_features("pixel_values"),
    options=lambda _: {"crop_to_patches": True},
)
