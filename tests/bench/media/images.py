"""Time to the first token of a prompt with an image, and of the same prompt once more.

    python -m tests.bench.media.images [--text 448] [--pictures 5]

A LLaVA of random weights: a tower of ViT-B/16's shape at 384 pixels, whose images are 576 tokens,
before a language model of SmolLM-135M's. Requests go through the ingress, in this process.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from rich.progress import track
from transformers import CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration

from deployments.engine.engine import InferenceEngine
from deployments.ingress.metrics import Metrics
from deployments.media.images import as_png
from deployments.openai.routes import app
from tests.bench.shapes import SHAPE_135M
from tests.checkpoints import SPECIAL
from tests.engine.media.checkpoint import TEMPLATE
from tests.engine.media.tiny_families import llava
from tests.ingress.engines import ScriptedEngine
from tests.media.serving import data_url
from tests.openai.serving import sdk

SIDE, PATCH = 384, 16
PICTURE = (640, 480)  # pixels
TOWER = CLIPVisionConfig(
    hidden_size=768,
    intermediate_size=3072,
    num_hidden_layers=12,
    num_attention_heads=12,
    image_size=SIDE,
    patch_size=PATCH,
)


def save(folder: Path) -> None:
    processor = llava(*SPECIAL)
    square = {"height": SIDE, "width": SIDE}
    processor.image_processor.size = processor.image_processor.crop_size = square
    processor.patch_size = PATCH
    processor.tokenizer.chat_template = TEMPLATE
    text = SHAPE_135M.to_dict() | {"vocab_size": len(processor.tokenizer)}
    config = LlavaConfig(
        vision_config=TOWER,
        text_config=text,
        image_token_index=processor.image_token_id,
        vision_feature_layer=-1,
    )
    LlavaForConditionalGeneration(config).to(torch.bfloat16).save_pretrained(folder)
    processor.save_pretrained(folder)


def picture(seed: int) -> str:
    width, height = PICTURE
    small = np.random.default_rng(seed).integers(0, 256, (height // 20, width // 20, 3))
    return data_url(as_png(Image.fromarray(small.astype(np.uint8)).resize(PICTURE)))


async def first_token_ms(client: Any, url: str, text: str) -> tuple[float, int]:
    """Times the first token, and returns how many tokens the prompt has too."""
    began = time.perf_counter()
    content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": text}]
    stream = await client.chat.completions.create(
        model="model",
        messages=[{"role": "user", "content": content}],
        max_tokens=1,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"return_token_ids": True},
    )
    found, n_tokens = 0.0, 0
    async for chunk in stream:
        if not found and chunk.choices and getattr(chunk.choices[0], "token_ids", None):
            found = 1e3 * (time.perf_counter() - began)
        n_tokens = chunk.usage.prompt_tokens if chunk.usage else n_tokens
    return found, n_tokens


async def measure(engine: InferenceEngine, n_pictures: int, n_text: int) -> None:
    text = "".join(chr(97 + index % 26) for index in range(n_text))
    firsts, seconds, n_tokens = [], [], 0
    async with sdk(app(ScriptedEngine(engine.core.stream, engine.card), Metrics())) as client:
        await first_token_ms(client, picture(n_pictures), text)
        for seed in track(range(n_pictures), "pictures", transient=True):
            first, n_tokens = await first_token_ms(client, picture(seed), text)
            second, _ = await first_token_ms(client, picture(seed), text)
            firsts.append(first)
            seconds.append(second)
    ratio = median(b / a for a, b in zip(firsts, seconds, strict=True))
    print(
        f"a prompt of {n_tokens} tokens with an image: first token after {median(firsts):.0f} ms, "
        f"once more after {median(seconds):.0f} ms; ratio {ratio:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--text", type=int, default=448, help="tokens beside the image")
    parser.add_argument("--pictures", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        save(Path(folder))
        with InferenceEngine(folder) as engine:
            asyncio.run(measure(engine, arguments.pictures, arguments.text))


if __name__ == "__main__":
    main()
