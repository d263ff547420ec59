"""Tiny random models that see, with their processors, and requests with images."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, PreTrainedModel

from deployments.engine.limits import EngineLimits
from deployments.engine.loading.media_models import as_language_model
from deployments.media.families.registry import rules_of
from deployments.media.images import as_png, described
from deployments.media.placeholders import expand
from deployments.media_rules import MediaKind, MediaRules
from deployments.wire import GenerationRequest, MediumFile, SamplingParams
from kv.content import Content
from tests.engine.drive import GREEDY, Engine, engine, request
from tests.engine.media.tiny_families import FAMILIES


@dataclass(frozen=True)
class Seeing:
    """`whole` is transformers' model."""

    whole: PreTrainedModel
    processor: Any
    rules: MediaRules
    mark: str

    def ids(self, text: str, images: Sequence[Image.Image] = ()) -> tuple[list[int], Content]:
        media = [described(one, b"") for one in images]
        expanded = expand(self._marked(text), self.rules, media, "messages")
        ids = self.processor.tokenizer(expanded.text, add_special_tokens=False).input_ids
        placed, places = expanded.place(ids, "messages")
        return [*placed], Content(media=places)

    def request(
        self,
        name: str,
        text: str,
        images: Sequence[Image.Image] = (),
        sampling: SamplingParams = GREEDY,
        *,
        max_tokens: int = 12,
        salt: str = "",
    ) -> GenerationRequest:
        ids, content = self.ids(text, images)
        files = tuple(MediumFile(kind=MediaKind.IMAGE, data=as_png(one)) for one in images)
        return replace(
            request(name, ids, sampling, max_tokens=max_tokens),
            content=replace(content, salt=salt),
            media=files,
        )

    def _marked(self, text: str) -> str:
        return text.replace("<image>", self.mark)

    @torch.inference_mode()
    def expected(self, text: str, images: Sequence[Image.Image], n: int = 12) -> tuple[int, ...]:
        """Greedy tokens of transformers' own."""
        inputs = self.processor(
            text=self._marked(text), images=list(images) or None, return_tensors="pt"
        )
        length = inputs["input_ids"].shape[1]
        found = self.whole.generate(**inputs, max_new_tokens=n, do_sample=False, pad_token_id=0)
        return tuple(found[0, length:].tolist())


@cache
def seeing(name: str = "llava") -> Seeing:
    family = FAMILIES[name]
    processor = family.processor()
    rules = rules_of(processor)
    assert rules is not None
    assert rules.images is not None
    config = family.config(rules.images.placeholder_id)
    torch.manual_seed(0)
    whole = AutoModelForImageTextToText.from_config(config).float().eval()
    spread(whole)
    model = as_language_model(copy.deepcopy(whole), processor)
    return Seeing(whole, processor, model.media_encoder.rules, family.mark)


@torch.no_grad()
def spread(model: PreTrainedModel) -> None:
    """Images of other pixels shall have other answers."""
    generator = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        if "vision" in name or "projector" in name:
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)


@contextmanager
def seeing_engine(name: str = "llava", limits: EngineLimits | None = None) -> Iterator[Engine]:
    one = seeing(name)
    model = as_language_model(copy.deepcopy(one.whole), one.processor)
    with engine(model=model, limits=limits) as running:
        yield running


@cache
def picture(seed: int, width: int = 40, height: int = 30) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height // 5, width // 5, 3))
    return Image.fromarray(pixels.astype(np.uint8)).resize(
        (width, height), Image.Resampling.NEAREST
    )
