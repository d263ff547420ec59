"""Draws a token of each row: the one whose logit and Gumbel noise are the most together.

So each token is drawn with the probability that its logit stands for. Its noise is a function of
(seed, position, token id) alone. Two distributions that are nearly the same hence nearly always
give the same token: a draft model is right nearly as often as it shares the model's distribution.
"""

import numpy as np
import torch
from torch import Tensor

from deployments.contract.requests import SamplingParams
from deployments.engine.kernels.draw import draw_
from deployments.engine.rng import SAMPLE_STREAM
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.transfer import to_device


def draw(logits: Tensor, rows: SamplingRows) -> tuple[Tensor, Tensor]:
    """Token ids [rows]: the most likely one of greedy rows, elsewhere a random one. And the largest
    logit of each row, by which no token can be drawn where it is not finite. [rows]"""
    group = rows.group(_is_random)
    largest, token_ids = _likeliest(logits, is_needed=len(group) < len(logits))
    if group:
        keys = to_device(rows.keys(group, SAMPLE_STREAM).view(np.int64), logits.device)
        draw_(token_ids, logits, largest, group.index, keys)
    return token_ids, largest


def _is_random(params: SamplingParams) -> bool:
    return params.temperature > 0


def _likeliest(logits: Tensor, *, is_needed: bool) -> tuple[Tensor, Tensor]:
    """The largest logit of each row, and its token: on a CPU only where it `is_needed`. [rows],
    [rows]"""
    if logits.is_cuda:
        return logits.max(1)
    if not is_needed:
        return logits.amax(1), torch.zeros(len(logits), dtype=torch.int64)
    # NumPy's takes a third of the time of `max`. A NaN is the largest number of both.
    found = logits.numpy()
    token_ids = found.argmax(1)
    largest = found[np.arange(len(found)), token_ids]
    return torch.from_numpy(largest), torch.from_numpy(token_ids)
