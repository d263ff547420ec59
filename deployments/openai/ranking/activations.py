"""Probabilities of the logits of a classification head, and scores of pairs."""

import math
from collections.abc import Sequence

from deployments.contract.model_card import ModelCard
from deployments.contract.outputs import Activation
from deployments.ingress.pooling.vectors import numbers


def probabilities(data: bytes, card: ModelCard, use_activation: bool | None) -> list[float]:
    """Activates the logits of a classification head as the model's files say.

    With `use_activation` True they are activated in any case, with False not at all.
    """
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
            return [sigmoid(logit) for logit in logits]
        case Activation.SOFTMAX:
            return softmax(logits)
    return list(logits)


def softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    weights = [math.exp(logit - top) for logit in logits]
    total = sum(weights)
    return [weight / total for weight in weights]


def sigmoid(logit: float) -> float:
    """Computes the sigmoid without an overflow on either side."""
    small = math.exp(-abs(logit))
    return 1 / (1 + small) if logit >= 0 else small / (1 + small)
