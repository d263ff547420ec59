"""How experts are chosen, and what they compute between their products, for kernels to know."""

from typing import NamedTuple

import torch

SOFTMAX, SIGMOID = range(2)  # scores of logits
GATE, SQUARED_RELU = range(2)  # kinds of activations


class Routing(NamedTuple):
    """How experts are chosen by their scores, a softmax or a sigmoid of logits. (The softmax of the
    chosen logits alone is that of all, normed.)

    rounds: logits are rounded to the type of what is routed.
    dtype: of the weights that tokens get.
    n_groups: of experts, of which the `n_chosen_groups` best are chosen first, by the sum of the
        `best_of_group` best scores in each.
    is_normed: the weights of a token are divided by their sum and `epsilon`. All are then
        multiplied by `factor`.
    """

    k: int
    score: int = SOFTMAX
    rounds: bool = False
    dtype: torch.dtype = torch.float32
    n_groups: int = 1
    n_chosen_groups: int = 1
    best_of_group: int = 2
    is_normed: bool = False
    epsilon: float = 0.0
    factor: float = 1.0

    @property
    def has_groups(self) -> bool:
        """Whether some groups of experts are left out before experts are chosen."""
        return self.n_groups > self.n_chosen_groups


class ExpertActivation(NamedTuple):
    """Computes `x * sigmoid(slope * x + cube * x ** 3)`, or the square of x where it is positive.

    Experts with two first products multiply it by `other + shift`. Before, x is cut at `limit`, and
    `other` at both sides.
    """

    kind: int = GATE
    limit: float = float("inf")
    slope: float = 1.0
    cube: float = 0.0
    shift: float = 0.0
