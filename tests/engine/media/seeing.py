"""Tiny random models that see or hear, with their processors, and requests with media."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from transformers import AutoModelForMultimodalLM, PreTrainedModel

from deployments.contract.media_rules import MediaRules
from deployments.contract.requests import GenerationRequest, MediumFile, SamplingParams
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.media.media_models import split_media
from deployments.media.images import as_png, described
from deployments.media.medium import Medium
from deployments.media.placeholders import expand
from deployments.media.rules import rules_of
from deployments.media.sounds import read_sound
from kv.content import Content
from tests.engine.drive import GREEDY, Engine, engine, request
from tests.engine.media.tiny_families import FAMILIES
from tests.media.files import sound

Shown = Image.Image | NDArray[np.float32]  # samples of a sound
RATE = 16_000


def medium(shown: Shown) -> Medium:
    if isinstance(shown, Image.Image):
        return described(shown, as_png(shown))
    return read_sound(sound(shown, RATE), max_s=60)


@dataclass(frozen=True)
class Seeing:
    """`whole` is transformers' model."""

    whole: PreTrainedModel
    processor: Any
    rules: MediaRules
    mark: str

    def ids(self, text: str, media: Sequence[Medium] = ()) -> tuple[list[int], Content]:
        expanded = expand(self._marked(text), self.rules, media, "messages")
        ids = self.processor.tokenizer(expanded.text, add_special_tokens=False).input_ids
        inserted, ranges = expanded.insert_placeholders(ids, "messages")
        return [*inserted], Content(media=ranges)

    def request(
        self,
        name: str,
        text: str,
        shown: Sequence[Shown] = (),
        sampling: SamplingParams = GREEDY,
        *,
        max_tokens: int = 12,
        salt: str = "",
    ) -> GenerationRequest:
        media = [medium(source) for source in shown]
        ids, content = self.ids(text, media)
        files = tuple(MediumFile(kind=entry.kind, data=entry.data) for entry in media)
        return replace(
            request(name, ids, sampling, max_tokens=max_tokens),
            content=replace(content, salt=salt),
            media=files,
        )

    def _marked(self, text: str) -> str:
        return text.replace("<image>", self.mark)

    @torch.inference_mode()
    def expected(self, text: str, shown: Sequence[Shown], n: int = 12) -> tuple[int, ...]:
        """Greedy tokens of transformers' own."""
        inputs = self._inputs(text, shown)
        if not hasattr(self.whole, "model"):
            return self._expected_of_llama4(inputs, n)
        length = inputs["input_ids"].shape[1]
        found = self.whole.generate(**inputs, max_new_tokens=n, do_sample=False, pad_token_id=0)
        return tuple(found[0, length:].tolist())

    def _expected_of_llama4(self, inputs: dict[str, Any], n: int) -> tuple[int, ...]:
        """The whole model fails in transformers 5.24, at what it returns besides logits."""
        whole: Any = self.whole
        ids = inputs["input_ids"]
        embedded = whole.get_input_embeddings()(ids)
        if "pixel_values" in inputs:
            seen = whole.get_image_features(inputs["pixel_values"], return_dict=True)
            vectors = whole.multi_modal_projector(seen.last_hidden_state)
            embedded[ids == whole.config.image_token_id] = vectors.flatten(0, -2)
        found = whole.language_model.generate(
            inputs_embeds=embedded, max_new_tokens=n, do_sample=False, pad_token_id=0
        )
        return tuple(found[0].tolist())

    def _inputs(self, text: str, shown: Sequence[Shown]) -> dict[str, Any]:
        if hasattr(self.processor, "_retrieve_input_features"):
            return self._inputs_of_voxtral(text, shown)
        given: dict[str, Any] = {}
        if self.rules.images is not None:
            given["images"] = [image for image in shown if isinstance(image, Image.Image)] or None
        if self.rules.audio is not None:
            given["audio"] = [
                samples for samples in shown if not isinstance(samples, Image.Image)
            ] or None
            given["sampling_rate"] = RATE
        made = self.processor(text=[self._marked(text)], **given, return_tensors="pt")
        return dict(made)

    def _inputs_of_voxtral(self, text: str, shown: Sequence[Shown]) -> dict[str, Any]:
        """Whose processor takes sounds in conversations alone, by Mistral's own library."""
        inputs = {
            "input_ids": torch.tensor([self.ids(text, [medium(source) for source in shown])[0]])
        }
        if shown:
            extractor = self.processor.feature_extractor
            inputs["input_features"] = self.processor._retrieve_input_features(
                [*shown],
                extractor.nb_max_frames,
                padding=True,
                truncation=False,
                pad_to_multiple_of=extractor.n_samples,
                sampling_rate=RATE,
                return_tensors="pt",
            )
        return inputs


@cache
def seeing(name: str = "llava") -> Seeing:
    family = FAMILIES[name]
    processor = family.processor()
    rules = rules_of(processor)
    assert rules is not None
    part = rules.images or rules.audio
    assert part is not None
    config = family.config(part.placeholder_id)
    torch.manual_seed(0)
    whole = AutoModelForMultimodalLM.from_config(config).float().eval()
    spread(whole)
    encoder = split_media(copy.deepcopy(whole), processor).media
    assert encoder is not None
    return Seeing(whole, processor, encoder.rules, family.mark)


@torch.no_grad()
def spread(model: PreTrainedModel) -> None:
    """Images of other pixels shall have other answers."""
    generator = torch.Generator().manual_seed(1)
    for name, weight in model.named_parameters():
        if any(part in name for part in ("vision", "visual", "audio", "projector")):
            weight.add_(torch.randn(weight.shape, generator=generator) * 0.2)


def language_model(name: str = "llava") -> LoadedModel:
    """The part that the engine runs as any other model, and its encoder."""
    return split_media(copy.deepcopy(seeing(name).whole), seeing(name).processor)


@contextmanager
def seeing_engine(name: str = "llava", limits: EngineLimits | None = None) -> Iterator[Engine]:
    with engine(model=language_model(name), limits=limits) as running:
        yield running


def shown(name: str, seed: int, width: int = 40, height: int = 30) -> Shown:
    """Returns an image if the model of this family sees, else a sound."""
    return picture(seed, width, height) if seeing(name).rules.images else noise(seed, width)


@cache
def noise(seed: int, length: int = 40) -> NDArray[np.float32]:
    """Makes a sound that is as long as an image is wide."""
    generator = np.random.default_rng(seed)
    n_samples = length * 100
    tone = np.sin(np.arange(n_samples) * generator.uniform(0.05, 1.5))
    sound: NDArray[np.float32] = (tone * generator.uniform(0, 1, n_samples)).astype(np.float32)
    return sound


@cache
def picture(seed: int, width: int = 40, height: int = 30) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height // 5, width // 5, 3))
    return Image.fromarray(pixels.astype(np.uint8)).resize(
        (width, height), Image.Resampling.NEAREST
    )
