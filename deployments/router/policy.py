"""Which replica serves a request: a pure function of prefix overlap and load."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Candidate:
    replica_id: str
    overlap: int  # leading pages of the prompt that it holds
    active: int  # requests running or waiting there


@dataclass(frozen=True, slots=True)
class CostWeights:
    """Cost in pages: what is left of the prompt to compute, and what those before it will take.

    active: pages that one running request is worth.
    """

    active: float = 8.0


def cost(candidate: Candidate, prompt_pages: int, weights: CostWeights) -> float:
    return prompt_pages - candidate.overlap + weights.active * candidate.active


def choose(candidates: Sequence[Candidate], prompt_pages: int, weights: CostWeights) -> str | None:
    """The cheapest replica, the least busy of those that cost the same; None without any."""
    best = min(
        candidates,
        key=lambda c: (cost(c, prompt_pages, weights), c.active, c.replica_id),
        default=None,
    )
    return None if best is None else best.replica_id
