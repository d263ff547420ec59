"""The files of the demo model, of its draft and of the one that sees, and how they are loaded."""

from pathlib import Path

import torch
from transformers import (
    AutoProcessor,
    AutoTokenizer,
    LlamaForCausalLM,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

MODEL = Path(__file__).with_name("model")
DRAFT = Path(__file__).with_name("draft")
VISION = Path(__file__).with_name("vision")


def load(folder: Path = MODEL) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    return LlamaForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def load_vision(folder: Path = VISION) -> tuple[LlavaForConditionalGeneration, LlavaProcessor]:
    """Loads the model in float32, so that a picture is seen alike on every machine."""
    model = LlavaForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
    return model, AutoProcessor.from_pretrained(folder)
