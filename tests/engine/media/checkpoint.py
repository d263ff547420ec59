"""A model directory with a tiny model that sees, its processor and a chat template."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor, PreTrainedModel

from tests.checkpoints import SPECIAL
from tests.engine.media.seeing import spread
from tests.engine.media.tiny_families import FAMILIES, llava

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'image' %}<image>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def save_seeing(path: Path) -> None:
    """LLaVA in float32, of random weights. It never ends by itself."""
    processor = llava(*SPECIAL)
    processor.tokenizer.chat_template = TEMPLATE
    config = FAMILIES["llava"].config(processor.image_token_id)
    config.text_config.vocab_size = len(processor.tokenizer)
    torch.manual_seed(0)
    model = AutoModelForImageTextToText.from_config(config).float()
    spread(model)
    model.save_pretrained(path)
    processor.save_pretrained(path)


def load_seeing(path: Path) -> tuple[PreTrainedModel, Any]:
    """Loads the model and its processor as transformers has them."""
    model = AutoModelForImageTextToText.from_pretrained(path, dtype=torch.float32)
    return model.eval(), AutoProcessor.from_pretrained(path, backend="pil")
