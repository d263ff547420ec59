"""LLaVA 1.5, and Pixtral in its form: a tower, a projector, and a vector for each patch."""

from deployments.engine.media.families.family import MediaFamily, image_features

LLAVA = MediaFamily("LlavaForConditionalGeneration", image_features("pixel_values", "image_sizes"))
