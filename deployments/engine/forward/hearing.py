"""The half of a speech model that hears: its encoder, and the decoder's attention to it.

A sound is encoded once for each task that runs, and never again while any of them, or the memory of
the latest sounds, has its states.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel, WhisperFeatureExtractor

from deployments.engine.tasks.sound import CrossStates, Sound
from deployments.wire import GenerationRequest

SOUND_ENCODER = "sound_encoder"  # a module of models that transcribe
SAMPLE_BYTES = 2  # of the sounds in requests: 16 bits, mono, little endian
MAX_KEPT = 4  # sounds that no task needs


class CrossAttention(nn.Module):
    """In the place of a layer's attention to the encoder. Rows attend to sounds of their own."""

    def __init__(self, attention: nn.Module, layer: int) -> None:
        super().__init__()
        given: Any = attention
        self.k_proj, self.v_proj = given.k_proj, given.v_proj
        self.q_proj, self.out_proj = given.q_proj, given.out_proj
        self._heads, self._scaling, self._layer = given.num_heads, given.scaling, layer

    def states(self, encoded: Tensor) -> tuple[Tensor, Tensor]:
        """encoded [frames, hidden] -> keys and values [heads, frames, dim]"""
        keys, values = self.k_proj(encoded), self.v_proj(encoded)
        return self._by_head(keys), self._by_head(values)

    def forward(
        self, hidden_states: Tensor, key_value_states: "HeardRows", **_: object
    ) -> tuple[Tensor, None]:
        """hidden_states [1, tokens, hidden]"""
        queries = self._by_head(self.q_proj(hidden_states[0]) * self._scaling)
        heard = key_value_states.attend(self._layer, queries)
        return self.out_proj(heard.transpose(0, 1).flatten(1))[None], None

    def _by_head(self, given: Tensor) -> Tensor:
        return given.unflatten(-1, (self._heads, -1)).transpose(0, 1).contiguous()


class HeardRows:
    """What each row of a step hears, which layers are given in the place of the encoder's states.

    Row by row: what a row hears is the same whatever the others are.
    """

    def __init__(self, states: Sequence[CrossStates], new_len: Sequence[int]) -> None:
        self._states = states
        self._new_len = new_len

    def attend(self, layer: int, queries: Tensor) -> Tensor:
        """queries [heads, tokens, dim] -> [heads, tokens, dim]"""
        parts = [
            F.scaled_dot_product_attention(row[None], keys[None], values[None], scale=1.0)[0]
            for row, (keys, values) in zip(
                queries.split([*self._new_len], dim=1),
                (states[layer] for states in self._states),
                strict=True,
            )
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


class Hearing:
    """Of one model. `prepare` is for any thread, all else for the one that runs the model."""

    def __init__(self, model: PreTrainedModel) -> None:
        whole: Any = model
        decoder = whole.model.decoder
        self._encoder: nn.Module = getattr(model, SOUND_ENCODER)
        self._cross: Sequence[CrossAttention] = [layer.encoder_attn for layer in decoder.layers]
        self._device, self._dtype = model.device, model.dtype
        self._extractor = extractor_of(model.config)
        self._kept: OrderedDict[bytes, CrossStates] = OrderedDict()
        self._rows: HeardRows | None = None
        decoder.register_forward_pre_hook(self._give_rows, with_kwargs=True)

    @property
    def max_bytes(self) -> int:
        """Of the sound of one request."""
        n_samples: int = self._extractor.n_samples
        return n_samples * SAMPLE_BYTES

    def prepare(self, request: GenerationRequest) -> Sound:
        """The features of a valid request's sound, if they are needed."""
        # Who has other salt finds nothing of it, as in pages.
        digest = request.content.root() + request.content.media[0].digest
        states = self._kept.get(digest)
        if states is not None:
            return Sound(digest, states=states)
        samples = np.frombuffer(request.media[0].data, dtype="<i2").astype(np.float32) / 32768
        rate = self._extractor.sampling_rate
        made = self._extractor(samples, sampling_rate=rate, return_tensors="pt")
        return Sound(digest, features=made["input_features"][0])

    @contextmanager
    def of(self, sounds: Sequence[Sound | None], new_len: Sequence[int]) -> Iterator[None]:
        """Within, the rows of a step hear these; a trial without any hears nothing."""
        heard = [self._states(sound) for sound in sounds if sound is not None]
        if not heard:
            yield
            return
        self._rows = HeardRows(heard, new_len)
        try:
            yield
        finally:
            self._rows = None

    def _states(self, sound: Sound) -> CrossStates:
        if sound.states is None:
            sound.states = self._kept.get(sound.digest) or self._encode(sound)
            sound.features = None
            self._kept[sound.digest] = sound.states
            self._kept.move_to_end(sound.digest)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
        return sound.states

    def _encode(self, sound: Sound) -> CrossStates:
        assert sound.features is not None
        features = sound.features.to(self._device, self._dtype)
        encoded: Tensor = self._encoder(features[None]).last_hidden_state[0]
        return [layer.states(encoded) for layer in self._cross]

    def _give_rows(
        self, _: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        return args, {**kwargs, "encoder_hidden_states": self._rows}


def hearing_of(model: PreTrainedModel) -> Hearing | None:
    """None for a model that reads text."""
    return Hearing(model) if hears(model) else None


def hears(model: PreTrainedModel) -> bool:
    return SOUND_ENCODER in model._modules


def extractor_of(config: Any) -> WhisperFeatureExtractor:
    """The encoder halves the number of frames, of which there are a hundred a second."""
    return WhisperFeatureExtractor(
        feature_size=config.num_mel_bins, chunk_length=config.max_source_positions // 50
    )
