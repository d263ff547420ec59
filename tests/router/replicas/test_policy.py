"""The choice of a replica: cost, ties, draws."""

import random
from collections import Counter
from dataclasses import replace

import pytest

from deployments.router.replicas.policy import Candidate, choose, cost
from deployments.router.settings import RoutingSettings

SETTINGS = RoutingSettings()


def chosen(
    *candidates: Candidate, pages: int = 0, settings: RoutingSettings = SETTINGS, seed: int = 0
) -> str:
    found = choose(candidates, pages, settings, random.Random(seed))
    assert found is not None
    return found.replica_id


def test_the_replica_that_holds_the_prefix_is_chosen() -> None:
    assert chosen(Candidate("a"), Candidate("b", overlap=60, running=2), pages=62) == "b"


def test_a_busy_owner_of_a_short_prefix_is_not_worth_the_wait() -> None:
    assert chosen(Candidate("a"), Candidate("b", overlap=4, pending=20), pages=8) == "a"
    assert chosen(Candidate("a"), Candidate("b", overlap=4, running=20), pages=8) == "a"
    assert chosen(Candidate("a"), Candidate("b", overlap=4, waiting=5), pages=8) == "a"


def test_without_replicas_there_is_no_choice() -> None:
    assert choose([], 3, SETTINGS, random.Random(0)) is None


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (Candidate("a", overlap=2), Candidate("a", overlap=1)),
        (Candidate("a", pending=1), Candidate("a", pending=2)),
        (Candidate("a", running=1), Candidate("a", running=2)),
        (Candidate("a", waiting=1), Candidate("a", waiting=2)),
        (Candidate("a"), Candidate("a", is_asleep=True)),
        (Candidate("a", had_session=True), Candidate("a")),
        (Candidate("a", excess=0.1), Candidate("a", excess=0.2)),
    ],
)
def test_everything_that_counts_has_a_price(better: Candidate, worse: Candidate) -> None:
    assert cost(better, 8, SETTINGS) < cost(worse, 8, SETTINGS)


def test_a_sleeper_is_woken_for_a_prefix_that_is_worth_more() -> None:
    pages = int(SETTINGS.wake)
    sleeper = Candidate("b", overlap=pages + 1, is_asleep=True)
    assert chosen(Candidate("a"), sleeper, pages=pages + 1) == "b"
    assert chosen(Candidate("a", overlap=2), sleeper, pages=pages + 1) == "a"


def test_a_session_stays_while_nothing_else_speaks_against_it() -> None:
    last = Candidate("b", running=1, had_session=True)
    assert chosen(Candidate("a"), last) == "b"
    assert chosen(Candidate("a"), last._replace(running=40)) == "a"


def test_of_those_that_cost_the_same_the_least_busy_is_chosen() -> None:
    settings = replace(SETTINGS, decode=1.0)
    busy, free = Candidate("a", overlap=2, running=2), Candidate("b")
    assert {chosen(busy, free, pages=4, settings=settings, seed=n) for n in range(20)} == {"b"}


def test_of_equals_no_name_is_preferred() -> None:
    equals = [Candidate(name) for name in "abcd"]
    counts = Counter(chosen(*equals, seed=n) for n in range(400))
    assert min(counts[name] for name in "abcd") > 50


def test_a_temperature_draws_cheaper_ones_more_often() -> None:
    settings = replace(SETTINGS, temperature=0.5)
    candidates = [Candidate("a", overlap=100), Candidate("b", overlap=50), Candidate("c")]
    rng = random.Random(1)
    draws = [choose(candidates, 100, settings, rng) for _ in range(2000)]
    counts = Counter(draw.replica_id for draw in draws if draw)
    assert counts["a"] > counts["b"] > counts["c"] > 0


def test_hardly_any_temperature_is_as_none() -> None:
    settings = replace(SETTINGS, temperature=1e-6)
    candidates = [Candidate("a", overlap=1), Candidate("b")]
    assert {chosen(*candidates, pages=1, settings=settings, seed=n) for n in range(50)} == {"a"}


def test_a_temperature_treats_equals_alike() -> None:
    settings = replace(SETTINGS, temperature=1.0)
    equals = [Candidate("a"), Candidate("b")]
    counts = Counter(chosen(*equals, settings=settings, seed=n) for n in range(400))
    assert min(counts.values()) > 100
