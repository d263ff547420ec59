"""Idefics 3 and SmolVLM: tiles, and the whole image behind them."""

from deployments.engine.media.families.family import MediaFamily, image_features

_VECTORS = image_features("pixel_values", "pixel_attention_mask")
IDEFICS3 = MediaFamily("Idefics3ForConditionalGeneration", _VECTORS, language="text_model")
SMOLVLM = MediaFamily("SmolVLMForConditionalGeneration", _VECTORS, language="text_model")
