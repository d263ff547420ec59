"""Which replica serves a request: a pure function of prefix overlap, load and fairness."""

import random
from collections.abc import Sequence
from math import exp
from typing import NamedTuple

from deployments.router.settings import RoutingSettings


class Candidate(NamedTuple):
    """A replica as this request finds it.

    overlap: leading pages of the prompt that it holds.
    pulled: the pages behind those that it would pull from another replica, at `pull_cost` each.
    pending: pages of other prompts that it has to compute first.
    was_last: the conversation's last request went there.
    excess: of the work sent there lately over the mean, as a share of the mean.
    """

    replica_id: str
    overlap: int = 0
    pending: float = 0.0
    running: int = 0
    waiting: int = 0
    is_asleep: bool = False
    had_session: bool = False
    excess: float = 0.0
    pulled: int = 0
    pull_cost: float = 1.0

    @property
    def saved(self) -> float:
        """Leading pages that it need not compute, less the cost of pulling some of them."""
        return self.overlap + self.pulled * (1 - self.pull_cost)

    @property
    def load(self) -> int:
        return self.running + self.waiting


def cost(candidate: Candidate, prompt_pages: int, settings: RoutingSettings) -> float:
    _, _, pending, running, waiting, is_asleep, had_session, excess, _, _ = candidate
    price = prompt_pages - candidate.saved
    price += settings.pending * pending + settings.balance * excess
    price += settings.decode * running + settings.queued * waiting
    if is_asleep:
        price += settings.wake
    return price - settings.session if had_session else price


def choose(
    candidates: Sequence[Candidate],
    prompt_pages: int,
    settings: RoutingSettings,
    rng: random.Random,
) -> Candidate | None:
    """The cheapest; among equals the least busy, then a random one; None without candidates."""
    if not candidates:
        return None
    costs = [cost(candidate, prompt_pages, settings) for candidate in candidates]
    if settings.temperature > 0:
        return rng.choices(candidates, weights(costs, settings.temperature))[0]
    least = min(costs)
    cheapest = [
        candidate for candidate, price in zip(candidates, costs, strict=True) if price == least
    ]
    load = min(candidate.load for candidate in cheapest)
    return rng.choice([candidate for candidate in cheapest if candidate.load == load])


def weights(costs: Sequence[float], temperature: float) -> list[float]:
    """A softmax over costs, scaled so that the least is 0 and the greatest 1."""
    least = min(costs)
    spread = (max(costs) - least) or 1.0
    return [exp((least - price) / spread / temperature) for price in costs]
