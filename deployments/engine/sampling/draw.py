"""Draws a token of each row: the one whose logit and Gumbel noise are the most together.

So each token is drawn with the probability that its logit stands for. Its noise is a function of
(seed, position, token id) alone. Two distributions that are nearly the same hence nearly always
give the same token: a draft model is right nearly as often as it shares the model's distribution.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.contract.requests import SamplingParams
from deployments.engine.kernels.draw import draw_
from deployments.engine.rng import SAMPLE_STREAM, stream_keys
from deployments.engine.sampling.rows import SEED_BITS, SamplingRows, non_default_fields
from deployments.engine.sampling.temperature import MAX_TEMPERATURE, MIN_TEMPERATURE
from deployments.engine.tasks.task import Task
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


# Fields by which a token is drawn, and those that take away from a distribution only what is hardly
# ever drawn.
PLAIN_FIELDS = frozenset(
    {
        *("temperature", "seed", "logprobs", "sampled_logprobs", "min_keep"),
        *("top_k", "top_p", "min_p", "typical_p", "top_n_sigma"),
    }
)


def plain_draws(
    tasks: Sequence[Task], n: int
) -> tuple[NDArray[np.float32], NDArray[np.uint64]] | None:
    """The temperatures [tasks] and the noise [n, tasks] by which guesses draw the next `n` tokens
    of tasks; None where it takes more than that."""
    if not all(non_default_fields(task) <= PLAIN_FIELDS for task in tasks):
        return None
    params = [task.request.sampling for task in tasks]
    temperatures = np.array([each.temperature for each in params], dtype=np.float32)
    keys = np.zeros((n, len(tasks)), dtype=np.uint64)
    if temperatures.any():
        bounded = temperatures.clip(MIN_TEMPERATURE, MAX_TEMPERATURE)
        temperatures = np.where(temperatures > 0, bounded, temperatures)
        seeds = np.array([each.seed & SEED_BITS for each in params], dtype=np.uint64)
        positions = np.array([task.n_tokens for task in tasks]) + np.arange(n)[:, None]
        keys = stream_keys(seeds, positions, SAMPLE_STREAM)
    return temperatures, keys


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
