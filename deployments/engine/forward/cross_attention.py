"""The cross-attention of a speech model: its encoder, and the decoder's attention to it.

A sound is encoded once for each task that runs, and never again while any of them, or the cache of
the latest sounds, has its keys and values.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel, WhisperFeatureExtractor

from deployments.contract.requests import GenerationRequest
from deployments.engine.tasks.sound import CrossKeyValues, Sound
from deployments.engine.tasks.task import Task

SAMPLE_BYTES = 2  # of the sounds in requests: 16 bits, mono, little endian
FRAMES_PER_STATE = 2  # of the features, whose number the encoder halves
# By row, the weights [heads, new tokens, states] of the heads that tell when a token is heard.
AlignmentWeights = Mapping[int, Sequence[Tensor]]
NO_WEIGHTS: AlignmentWeights = {}


class CrossAttention(nn.Module):
    """The replacement of a layer's attention to the encoder. Each row attends to its own sound."""

    def __init__(self, attention: nn.Module, layer: int) -> None:
        super().__init__()
        given: Any = attention
        self.k_proj, self.v_proj = given.k_proj, given.v_proj
        self.q_proj, self.out_proj = given.q_proj, given.out_proj
        self._heads, self._scaling, self._layer = given.num_heads, given.scaling, layer

    def key_values(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """states [states, hidden] -> keys and values [heads, states, dim]"""
        keys, values = self.k_proj(states), self.v_proj(states)
        return self._by_head(keys), self._by_head(values)

    def forward(
        self, hidden_states: Tensor, key_value_states: "EncoderStates", **_: object
    ) -> tuple[Tensor, None]:
        """hidden_states [1, tokens, hidden]"""
        queries = self._by_head(self.q_proj(hidden_states[0]) * self._scaling)
        attended = key_value_states.attend(self._layer, queries)
        return self.out_proj(attended.transpose(0, 1).flatten(1))[None], None

    def _by_head(self, given: Tensor) -> Tensor:
        return given.view(len(given), self._heads, -1).transpose(0, 1).contiguous()


class EncoderStates:
    """The encoder states that the rows of a step cross-attend to, as keys and values. Layers get
    them in place of the encoder's output.

    Each row is computed by itself, so that its result is the same whatever the others are. The rows
    in `aligned`, which says how many states each has, leave the weights of the `heads` of each
    layer in `weights`.
    """

    def __init__(
        self,
        key_values: Sequence[CrossKeyValues],
        new_len: Sequence[int],
        aligned: Mapping[int, int],
        heads: Mapping[int, Sequence[int]],
    ) -> None:
        self._key_values = key_values
        self._new_len = [*new_len]
        self._aligned, self._heads = aligned, heads
        self.weights: dict[int, list[Tensor]] = {row: [] for row in aligned}

    def attend(self, layer: int, queries: Tensor) -> Tensor:
        """queries [heads, tokens, dim] -> [heads, tokens, dim]"""
        rows = torch.split(queries, self._new_len, dim=1)
        if self._aligned and layer in self._heads:
            self._keep_weights(layer, rows)
        parts = [
            F.scaled_dot_product_attention(row[None], keys[None], values[None], scale=1.0)[0]
            for row, (keys, values) in zip(
                rows, (by_layer[layer] for by_layer in self._key_values), strict=True
            )
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _keep_weights(self, layer: int, rows: Sequence[Tensor]) -> None:
        heads = [*self._heads[layer]]
        for row, n_states in self._aligned.items():
            keys = self._key_values[row][layer][0][heads]
            weights = (rows[row][heads] @ keys.transpose(1, 2)).float().softmax(-1)
            self.weights[row].append(weights[..., :n_states])


class CrossAttentionCache:
    """The sounds of one model's tasks, which it encodes once. It keeps the keys and values of their
    cross-attention, and gives them to the decoder's layers.

    `prepare` is for any thread, all else for the one that runs the model.
    """

    def __init__(self, model: PreTrainedModel, encoder: nn.Module, max_kept: int) -> None:
        """model: the decoder. max_kept: sounds that are remembered, whether or not a task needs
        them."""
        whole: Any = model
        self._model, self._encoder, self._max_kept = model, encoder, max_kept
        self._heads = alignment_heads(model)
        self._extractor = extractor_of(model.config)
        self._kept: OrderedDict[bytes, CrossKeyValues] = OrderedDict()
        self._rows: EncoderStates | None = None
        decoder = whole.model.decoder
        self._hook = decoder.register_forward_pre_hook(self._give_rows, with_kwargs=True)

    def stop(self) -> None:
        """The model may be kept for another engine: it forgets this one, and its sounds."""
        self._hook.remove()
        self._kept.clear()

    @property
    def max_sound_bytes(self) -> int:
        """The most bytes of the sound of one request."""
        n_samples: int = self._extractor.n_samples
        return n_samples * SAMPLE_BYTES

    def prepare(self, request: GenerationRequest) -> Sound:
        """The sound of a valid request, with its features if they are needed."""
        # Who has other salt finds nothing of it, as in pages.
        digest = request.content.root() + request.content.media[0].digest
        samples = request.media[0].data
        features = None if digest in self._kept else self._features(samples)
        return Sound(digest, samples, features)

    @contextmanager
    def running(self, tasks: Sequence[Task], new_len: Sequence[int]) -> Iterator[AlignmentWeights]:
        """Within, the rows of a step cross-attend to the sounds of their tasks; a trial has none.

        What rows to align attend to is there when their step is computed.
        """
        key_values = [self._key_values(task.sound) for task in tasks if task.sound is not None]
        if not key_values:
            yield NO_WEIGHTS
            return
        aligned = {
            row: self._n_states(task.sound)
            for row, task in enumerate(tasks)
            if task.sound is not None and task.pooled is not None and task.pooled.aligns
        }
        self._rows = EncoderStates(key_values, new_len, aligned, self._heads)
        try:
            yield self._rows.weights
        finally:
            self._rows = None

    def _n_states(self, sound: Sound) -> int:
        hop: int = self._extractor.hop_length
        n_frames = -(-len(sound.samples) // SAMPLE_BYTES // hop)
        return max(1, n_frames // FRAMES_PER_STATE)

    def _key_values(self, sound: Sound) -> CrossKeyValues:
        if sound.key_values is None:
            sound.key_values = self._kept.get(sound.digest) or self._encode(sound)
            sound.features = None
            self._kept[sound.digest] = sound.key_values
            self._kept.move_to_end(sound.digest)
            while len(self._kept) > self._max_kept:
                self._kept.popitem(last=False)
        return sound.key_values

    def _encode(self, sound: Sound) -> CrossKeyValues:
        features = sound.features
        if features is None:  # it was preempted, or was kept when it came
            features = self._features(sound.samples)
        return encode(self._model, self._encoder, features)

    def _features(self, data: bytes) -> Tensor:
        """[bands, frames]"""
        samples = np.frombuffer(data, dtype="<i2").astype(np.float32) / 32768
        rate = self._extractor.sampling_rate
        made = self._extractor(samples, sampling_rate=rate, return_tensors="pt")
        features: Tensor = made["input_features"][0]
        return features

    def _give_rows(
        self, _: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        return args, {**kwargs, "encoder_hidden_states": self._rows}


def is_encoder_decoder(model: PreTrainedModel) -> bool:
    """Whether the model's layers attend to what an encoder makes of a sound."""
    return any(isinstance(module, CrossAttention) for module in model.modules())


def encode(model: PreTrainedModel, encoder: nn.Module, features: Tensor) -> CrossKeyValues:
    """Computes the keys and values that the decoder's layers attend to. features [bands, frames]"""
    whole: Any = model
    given = features.to(model.device, model.dtype)
    states: Tensor = encoder(given[None]).last_hidden_state[0]
    return [layer.encoder_attn.key_values(states) for layer in whole.model.decoder.layers]


def longest_features(model: PreTrainedModel) -> Tensor:
    """Returns features [bands, frames] of the longest sound, which is silence."""
    config: Any = model.config
    return torch.zeros(config.num_mel_bins, FRAMES_PER_STATE * config.max_source_positions)


def cross_attention_bytes(model: PreTrainedModel) -> int:
    """Returns the bytes of the keys and values of one sound."""
    config: Any = model.config
    n_numbers = 2 * config.decoder_layers * config.max_source_positions * config.d_model
    n_bytes: int = n_numbers * model.dtype.itemsize
    return n_bytes


def alignment_heads(model: PreTrainedModel) -> Mapping[int, Sequence[int]]:
    """Maps the layers of a speech model to their heads that attend to where a token is heard.

    Files of some models name none.
    """
    found: dict[int, list[int]] = defaultdict(list)
    for layer, head in getattr(model.generation_config, "alignment_heads", None) or ():
        found[layer].append(head)
    return dict(found)


def extractor_of(config: Any) -> WhisperFeatureExtractor:
    """The encoder halves the number of frames, of which there are a hundred a second."""
    return WhisperFeatureExtractor(
        feature_size=config.num_mel_bins, chunk_length=config.max_source_positions // 50
    )
