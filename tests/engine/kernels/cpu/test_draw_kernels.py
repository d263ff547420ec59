"""The CPU's draw of a token, against the greatest sum of a logit and its noise."""

import numpy as np
import pytest
import torch
from torch import Tensor

from deployments.engine.kernels.cpu.draw_kernels import GREATEST_NOISE, LEAST_NOISE
from deployments.engine.kernels.cpu.draw_kernels import gumbel_noise as compiled_noise
from deployments.engine.kernels.draw import MIN_PART, draw_
from deployments.engine.rng import mix
from tests.engine.kernels.noise import batches, drawn, gumbel_noise, random_keys, unmixed

EXTREMES = np.array([0, 2**64 - 1], dtype=np.uint64)


def drawn_by_kernel(logits: Tensor, keys: Tensor) -> list[int]:
    token_ids = torch.full((len(logits),), -1)
    draw_(token_ids, logits, logits.amax(1), torch.arange(len(logits)), keys)
    found: list[int] = token_ids.tolist()
    return found


def test_noise_is_the_same_to_the_bit() -> None:
    bits = np.concatenate([EXTREMES, mix(np.arange(20_000, dtype=np.uint64))])
    assert [compiled_noise(each) for each in bits] == gumbel_noise(bits).tolist()


def test_noise_is_that_of_its_distribution() -> None:
    bits = np.concatenate([EXTREMES, mix(np.arange(20_000, dtype=np.uint64))])
    uniform = ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    assert np.allclose(gumbel_noise(bits), -np.log(-np.log1p(-uniform)), rtol=0, atol=1e-12)
    assert LEAST_NOISE < gumbel_noise(EXTREMES)[1] < gumbel_noise(EXTREMES)[0] < GREATEST_NOISE


@pytest.mark.parametrize("vocab", [1, 5, 128, 1000, 20_003])
def test_the_greatest_sum_is_drawn(vocab: int) -> None:
    for logits, keys in batches(vocab):
        assert drawn_by_kernel(logits, keys) == drawn(logits, keys)


@pytest.mark.parametrize("token_id", [0, 700])
def test_a_token_as_far_below_as_noise_can_reach_is_drawn_where_it_is_the_greatest(
    token_id: int,
) -> None:
    key = unmixed(0) - token_id  # which gives the token the greatest noise there is
    keys = torch.tensor([key - 2**64 if key >= 2**63 else key])
    other, greatest = (
        float(gumbel_noise(mix(np.array([key + i], dtype=np.uint64)))[0]) for i in (3, token_id)
    )
    for margin, expected in ((1e-4, token_id), (-1e-4, 3)):
        logits = torch.full((1, 1000), -torch.inf)
        logits[0, 3], logits[0, token_id] = 0, other - greatest + margin
        assert drawn_by_kernel(logits, keys) == [expected]


def test_however_many_threads_share_a_row_the_same_is_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    for logits, keys in batches(3 * MIN_PART + 5):
        assert drawn_by_kernel(logits[:1], keys[:1]) == drawn(logits[:1], keys[:1])


def test_rows_that_are_not_asked_for_stay_and_wrong_ones_get_a_token() -> None:
    logits = torch.randn(6, 300, generator=torch.Generator().manual_seed(0))
    logits[3, 7], logits[4], logits[5, 0] = torch.nan, -torch.inf, torch.inf
    wide = torch.cat([logits, logits], 1)[:, :300]  # rows further apart than they are long
    token_ids, keys = torch.full((6,), -1), random_keys(5)
    draw_(token_ids, wide, wide.amax(1), torch.tensor([5, 0, 4, 2, 3]), keys)
    alone = [drawn(logits[row : row + 1], keys[i : i + 1])[0] for i, row in ((1, 0), (3, 2))]
    assert token_ids[[0, 1, 2]].tolist() == [alone[0], -1, alone[1]]
    assert all(0 <= token_id < 300 for token_id in token_ids[3:].tolist())
