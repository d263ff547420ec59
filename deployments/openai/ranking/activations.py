"""Probabilities of the logits of a classification head, and scores of pairs."""

import math
from collections.abc import Sequence

from deployments.ingress.pooling.vectors import numbers
from deployments.outputs import Activation
from deployments.wire import ModelCard


def probabilities(data: bytes, card: ModelCard, use_activation: bool | None) -> list[float]:
    """As the model's files say; with `use_activation` True in any case, with False not at all."""
    logits = numbers(data)
    return activated(logits, activation_of(card, len(logits), use_activation))


def activation_of(card: ModelCard, n_logits: int, use_activation: bool | None) -> Activation:
    own = card.answers.activation
    if use_activation is False:
        return Activation.NONE
    if own is Activation.NONE and use_activation:
        return Activation.SIGMOID if n_logits == 1 else Activation.SOFTMAX
    return own


def activated(logits: Sequence[float], activation: Activation) -> list[float]:
    match activation:
        case Activation.SIGMOID:
            return [sigmoid(one) for one in logits]
        case Activation.SOFTMAX:
            return softmax(logits)
    return list(logits)


def softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    weights = [math.exp(one - top) for one in logits]
    total = sum(weights)
    return [one / total for one in weights]


def sigmoid(logit: float) -> float:
    """Without an overflow on either side."""
    small = math.exp(-abs(logit))
    return 1 / (1 + small) if logit >= 0 else small / (1 + small)
