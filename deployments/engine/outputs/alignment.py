"""Finds when the tokens of a transcript are heard, by what they attend to in the sound.

Dynamic time warping finds it, as in Whisper's own code and in transformers'.
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

MEDIAN_WIDTH = 7  # encoder states, of all Whispers

Floats = NDArray[np.float32]


def attention_map(weights: Tensor) -> Tensor:
    """weights [heads, tokens, states]. Returns [tokens, states]: how much more than others a token
    attends to an encoder state, the mean of its heads."""
    return torch.stack([_standardized(head) for head in weights]).mean(0)


def _standardized(weights: Tensor) -> Tensor:
    """Standardizes one head: sorted windows take several times the memory of its weights."""
    std, mean = torch.std_mean(weights, dim=0, correction=0, keepdim=True)
    scores = ((weights - mean) / std).nan_to_num()  # where all tokens attend equally
    pad = MEDIAN_WIDTH // 2
    if scores.shape[1] <= pad:
        return scores
    padded = F.pad(scores, (pad, pad), mode="reflect")
    return padded.unfold(1, MEDIAN_WIDTH, 1).sort().values[..., pad]


def first_states(scores: Floats) -> Floats:
    """scores [tokens, states]. The first state of each token, where all take their turns so that
    the sum of their scores is largest. A state takes one tick of `SpeechRules`."""
    best = _best_sums(-scores.astype(np.float64))
    row, state = scores.shape
    first = np.zeros(row, dtype=np.float32)
    while row:
        first[row - 1] = state - 1
        diagonal, above, left = best[row - 1, state - 1], best[row - 1, state], best[row, state - 1]
        if diagonal < min(above, left):
            row, state = row - 1, state - 1
        elif above < min(diagonal, left):
            row -= 1
        else:
            state -= 1
    return first


def _best_sums(costs: NDArray[np.float64]) -> NDArray[np.float64]:
    """costs [tokens, states]. Returns [tokens + 1, states + 1]: the least sum of a path to each."""
    n_tokens, n_states = costs.shape
    best = np.full((n_tokens + 1, n_states + 1), np.inf)
    best[0, 0] = 0
    for row, cost in enumerate(costs):
        # best[j] = cost[j] + min(entered[j], best[j - 1]) is a running minimum without the sums.
        entered, passed = np.minimum(best[row, :-1], best[row, 1:]), cost.cumsum()
        best[row + 1, 1:] = np.minimum.accumulate(entered - (passed - cost)) + passed
    return best
