"""Finds out how an encoder is run, and proves it beside transformers' own pass.

Of the ways the fastest one is taken that computes the same hidden states.
"""

import logging
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.forward.encoder import (
    POSITIONS,
    TYPES,
    Encoder,
    EncoderWay,
    alone,
    takes,
    whole_step,
)
from deployments.engine.loading.configs.context import longest_context
from kv.arrays import IntArray

log = logging.getLogger(__name__)

N_TOKENS, N_SHORT = 24, 7  # of the prompts that are tried
MAX_TRIED_TOKENS = 2048
# Differences of a prompt's hidden states, relative, that are put down to rounding.
MAX_ROUNDING, MAX_ROUNDING_HALF = 1e-3, 0.1


@torch.inference_mode()
def find_encoder_way(model: PreTrainedModel) -> EncoderWay:
    """How the model is run.

    Raises UnsupportedModelError for one that transformers itself can't run, or not without padding.
    """
    attention = "sdpa" if getattr(model, "_supports_sdpa", False) else "eager"
    takes_types = takes(model, TYPES) and getattr(model.config, "type_vocab_size", 0) > 1
    rows = _rows(model)
    second_at = [len(row) // 2 if takes_types and nth else 0 for nth, row in enumerate(rows)]
    with unsupported_on_error(f"transformers can't run {model.config.model_type}"):
        model.set_attn_implementation("eager")
        expected = [
            alone(model, row, second, takes_types=takes_types)
            for row, second in zip(rows, second_at, strict=True)
        ]
    reasons: list[str] = []
    for way in _ways(model, attention, takes_types):
        try:
            with unsupported_on_error("it fails"):
                found = Encoder(model, way)(whole_step(rows, second_at))
            _check(found, expected, model.dtype)
        except UnsupportedModelError as error:
            reasons.append(str(error))
            continue
        if not way.is_flat:
            log.warning("prompts of different lengths are run one after the other: %s", reasons[0])
        return way
    raise UnsupportedModelError(f"{model.config.model_type} can't be computed: {reasons[-1]}")


def _ways(model: PreTrainedModel, attention: str, takes_types: bool) -> Iterator[EncoderWay]:
    if takes(model, POSITIONS):
        for first in first_positions(model):
            yield EncoderWay(is_flat=True, first_position=first, takes_types=takes_types)
    for implementation in dict.fromkeys((attention, "eager")):
        yield EncoderWay(is_flat=False, takes_types=takes_types, attention=implementation)


def first_positions(model: PreTrainedModel) -> list[int]:
    """Returns positions that a first token may have: some models count on from that of padding."""
    padding: int | None = getattr(model.config, "pad_token_id", None)
    longest: int = getattr(model.config, "max_position_embeddings", None) or 0
    is_possible = padding is not None and 0 <= padding < longest - N_TOKENS
    return [0, padding + 1] if is_possible and padding is not None else [0]


def longest_prompt(model: PreTrainedModel) -> int:
    """Tokens of the longest prompt, by a model's files and by how it counts its positions.

    Raises UnsupportedModelError where its files do not say it.
    """
    config = model.config
    longest = longest_context(config)
    if longest is None:
        raise UnsupportedModelError(f"{config.model_type} does not say how long its prompts may be")
    embeddings = getattr(model.base_model, "embeddings", None)
    padding: int | None = getattr(embeddings, "padding_idx", None)
    return longest if padding is None else longest - padding - 1


def _rows(model: PreTrainedModel) -> list[IntArray]:
    """Two prompts without padding; the first is longer than the model's window."""
    config = model.config.get_text_config(decoder=True)
    window: int = getattr(config, "sliding_window", None) or 0
    n_tokens = min(longest_prompt(model), MAX_TRIED_TOKENS, window + N_TOKENS)
    padding = getattr(config, "pad_token_id", None)
    step = max(1, config.vocab_size // (n_tokens + 2)) | 1
    ids = np.arange(1, 2 * n_tokens + 2, dtype=np.int64) * step % config.vocab_size
    ids = ids[ids != padding][:n_tokens]
    return [ids, ids[::-1][: min(N_SHORT, len(ids))].copy()]


def _check(found: Tensor, expected: list[Tensor], dtype: torch.dtype) -> None:
    """Raises UnsupportedModelError unless both are the same up to rounding."""
    most = MAX_ROUNDING if dtype is torch.float32 else MAX_ROUNDING_HALF
    parts = torch.split(found, [len(states) for states in expected])
    for part, states in zip(parts, expected, strict=True):
        difference = float((part - states).float().norm() / states.float().norm())
        if not difference <= most:
            raise UnsupportedModelError("other hidden states in a batch than alone")
