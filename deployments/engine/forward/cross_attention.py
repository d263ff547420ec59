"""The cross-attention of a speech model: its encoder, and the decoder's attention to it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel, WhisperFeatureExtractor

# By layer, the keys and values [heads, states, dim] of a sound's encoder states.
CrossKeyValues = Sequence[tuple[Tensor, Tensor]]
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


class CurrentStates:
    """The encoder states that a decoder's rows cross-attend to now: those of a step, in a trial
    none."""

    def __init__(self) -> None:
        self._states: EncoderStates | None = None

    @contextmanager
    def running(self, states: EncoderStates | None) -> Iterator[None]:
        self._states = states
        try:
            yield
        finally:
            self._states = None

    def give(
        self, _: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> tuple[tuple[object, ...], dict[str, object]]:
        """Is called before the decoder, and adds the states to its arguments."""
        return args, {**kwargs, "encoder_hidden_states": self._states}


_CURRENT: WeakKeyDictionary[nn.Module, CurrentStates] = WeakKeyDictionary()


def replace_cross_attention(model: PreTrainedModel) -> None:
    """Has the decoder of a speech model attend to the encoder states of each row's own sound."""
    whole: Any = model
    decoder = whole.model.decoder
    for number, layer in enumerate(decoder.layers):
        layer.encoder_attn = CrossAttention(layer.encoder_attn, number)
    current = _CURRENT[model] = CurrentStates()
    decoder.register_forward_pre_hook(current.give, with_kwargs=True)


def current_states(model: PreTrainedModel) -> CurrentStates | None:
    """None for a model that reads text."""
    return _CURRENT.get(model)


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


def max_sound_bytes(model: PreTrainedModel) -> int:
    """The most bytes of one sound."""
    n_samples: int = extractor_of(model.config).n_samples
    return n_samples * SAMPLE_BYTES
