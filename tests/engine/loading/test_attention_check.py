"""The attention of a model is read out of its mask, and is served or refused."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import masking_utils as masks

from deployments.engine.attention.hf_hook import current_step
from deployments.engine.attention.interface import AttentionParams
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading import attention_check
from deployments.engine.loading.attention_check import MaskFunction, TrialAttention
from tests.models import tiny_model

NO_PADDING = torch.zeros(1, dtype=torch.int64)


def read_window(mask: MaskFunction, n_tokens: int) -> int | None:
    return attention_check.read_window(mask, n_tokens, torch.device("cpu"), "m")


@pytest.mark.parametrize("n_tokens", [1, 2, 3, 7, 64, 65])
def test_windows_are_read_as_transformers_has_them(n_tokens: int) -> None:
    assert read_window(masks.causal_mask_function, n_tokens) is None
    for window in range(1, n_tokens):
        mask = masks.sliding_window_causal_mask_function(window)
        assert read_window(mask, n_tokens) == window
    for window in (n_tokens, n_tokens + 1):
        assert read_window(masks.sliding_window_causal_mask_function(window), n_tokens) is None


@pytest.mark.parametrize("n_tokens", [3, 7, 64, 65])
def test_chunks_are_no_window(n_tokens: int) -> None:
    for chunk in range(2, n_tokens):
        with pytest.raises(UnsupportedModelError, match="m has a mask that is no window"):
            read_window(masks.chunked_causal_mask_function(chunk, NO_PADDING), n_tokens)


def two_ways(window: int) -> MaskFunction:
    found: MaskFunction = masks.sliding_window_bidirectional_mask_function(window)
    return found


@pytest.mark.parametrize("mask", [masks.bidirectional_mask_function, two_ways(4)])
def test_who_looks_ahead_is_refused(mask: MaskFunction) -> None:
    with pytest.raises(UnsupportedModelError, match="m has a mask that is not causal"):
        read_window(mask, 64)


def test_a_mask_that_depends_on_more_than_positions_is_refused() -> None:
    def by_the_batch(batch: Tensor, head: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return torch.ones(3, dtype=torch.bool)[q] & (k <= q)

    with pytest.raises(UnsupportedModelError, match="m has a mask that can't be read"):
        read_window(by_the_batch, 64)


class Layer(nn.Module):
    layer_idx = 0


def attend(**arguments: Any) -> int | None:
    """Checks attention with a mask of a window of 8 tokens. Returns the window that is served."""
    found: list[int | None] = []

    class Attention(TrialAttention):
        def attend(
            self, layer: int, q: Tensor, k: Tensor, v: Tensor, params: AttentionParams
        ) -> Tensor:
            found.append(params.window)
            return q

    mask = attention_check._keep_mask_function(
        1, 1, masks.sliding_window_causal_mask_function(8), torch.device("cpu")
    )
    module, heads = Layer(), torch.zeros(1, 2, 1, 8)
    with current_step(module).running(Attention(tiny_model())):
        attention_check._checked_attention(module, heads, heads, heads, mask, **arguments)
    return found[0]


def test_the_mask_has_the_window_whether_attention_is_told_or_not() -> None:
    assert attend() == attend(sliding_window=8) == attend(sliding_window=None, dropout=0.0) == 8


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"sliding_window": 9}, "a window of 9 tokens, and its mask has 8"),
        ({"position_bias": torch.zeros(1)}, "attends by position_bias, which the engine does not"),
        ({"is_causal": False}, "is not causal"),
    ],
)
def test_what_attention_is_told_otherwise_is_refused(
    arguments: dict[str, object], reason: str
) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        attend(**arguments)
