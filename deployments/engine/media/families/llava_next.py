"""LLaVA-NeXT and OneVision: the whole image, and tiles of it with a vector for each line end."""

from deployments.engine.media.families.family import MediaFamily, image_features

_VECTORS = image_features("pixel_values", "image_sizes")
LLAVA_NEXT = MediaFamily("LlavaNextForConditionalGeneration", _VECTORS)
LLAVA_ONEVISION = MediaFamily("LlavaOnevisionForConditionalGeneration", _VECTORS)
