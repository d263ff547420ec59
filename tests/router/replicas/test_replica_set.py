"""A model's replicas: reports in, choices out; and whole fleets of them in simulated time."""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest

from deployments.contract.replica_status import ReplicaReport
from deployments.router.replicas.replica_set import INFLIGHT_TIMEOUT_S, REPORT_TIMEOUT_S, ReplicaSet
from deployments.router.settings import RoutingSettings
from deployments.telemetry.metric_families import render
from kv.content import page_hashes
from tests.bench.routing import POLICIES, Outcome, PrefixAffine, simulate
from tests.bench.simulation.traces import multi_turn, shared_prompts
from tests.kv.test_cost import calls
from tests.router import reports

PAGE_SIZE = 16
report = partial(reports.report, snapshot=False, page_size=PAGE_SIZE)


class Fleet:
    """A replica set, its clock, and replicas that report what they are told to."""

    def __init__(self, names: str = "", settings: RoutingSettings | None = None) -> None:
        self.now = 100.0
        self.set = ReplicaSet("m", settings or RoutingSettings(), lambda: self.now, seed=0)
        self.last: dict[str, ReplicaReport] = {}
        for name in names:
            assert not self.set.report(report(name, snapshot=True))
            self.last[name] = report(name)

    def tell(self, name: str, skip: int = 0, **said: object) -> bool:
        """The replica's next report, or a later one."""
        before = self.last[name]
        said = {"sequence": before.sequence + 1 + skip, **said}
        after = replace(before, **said)  # type: ignore[arg-type]
        self.last[name] = replace(after, snapshot=False, stored=b"", evicted=b"", received=())
        return self.set.report(after)

    def choose(self, hashes: Sequence[bytes], request_id: str, *rest: str) -> str | None:
        return self.set.choose(hashes, request_id, *rest).replica_id

    def chosen_by_prefix(self, hashes: Sequence[bytes]) -> str | None:
        """Who is chosen for this prompt, by what they have stored alone."""
        chosen = self.choose(hashes, "probe")
        self.now += INFLIGHT_TIMEOUT_S
        for name in self.last:
            self.tell(name)
        return chosen


def prompt(number: int, pages: int = 200) -> list[bytes]:
    return page_hashes([number] * pages * PAGE_SIZE, PAGE_SIZE)


def test_without_replicas_nobody_is_chosen() -> None:
    fleet = Fleet()
    assert fleet.choose(prompt(1), "a") is None
    assert not fleet.set.asleep


def test_who_reports_a_prefix_is_chosen_for_it() -> None:
    fleet = Fleet("abc")
    for number, name in enumerate("abc"):
        fleet.tell(name, stored=b"".join(prompt(number)))
    assert [fleet.chosen_by_prefix(prompt(number)) for number in range(3)] == ["a", "b", "c"]


def test_what_is_reported_as_evicted_attracts_nobody() -> None:
    fleet = Fleet("ab")
    fleet.tell("a", stored=b"".join(prompt(1)), running=1)
    fleet.tell("a", evicted=b"".join(prompt(1)))
    assert fleet.chosen_by_prefix(prompt(1)) == "b"


def test_a_burst_spreads_over_idle_replicas() -> None:
    fleet = Fleet("abcd")
    chosen = [fleet.choose(prompt(n, 4), str(n)) for n in range(8)]
    assert sorted(replica_id for replica_id in chosen if replica_id) == sorted("abcd" * 2)


def test_a_burst_with_one_prefix_meets_on_one_replica_before_any_report() -> None:
    fleet = Fleet("abcd")
    prefix = prompt(1, 300)
    chosen = {fleet.choose([*prefix, *prompt(n, 2)], str(n)) for n in range(5)}
    assert len(chosen) == 1


def test_a_request_counts_where_it_was_sent_until_a_report_names_it() -> None:
    fleet = Fleet("a")
    assert not fleet.set.busy
    fleet.choose(prompt(1), "one")
    assert (fleet.set.waiting, fleet.set.busy, fleet.set.idle_s()) == (1, True, 0.0)
    fleet.tell("a", received=("one",), running=1)
    assert (fleet.set.running, fleet.set.waiting) == (1, 0)
    fleet.tell("a", running=0, idle_s=0.0)
    fleet.now += 3
    assert not fleet.set.busy
    assert fleet.set.idle_s() == pytest.approx(3)


def test_a_request_that_never_comes_is_forgotten() -> None:
    fleet = Fleet("a")
    fleet.choose(prompt(1), "one")
    fleet.now += INFLIGHT_TIMEOUT_S
    assert not fleet.set.busy


def test_a_request_chosen_for_again_counts_once() -> None:
    fleet = Fleet("ab")
    for _ in range(5):
        fleet.choose(prompt(1), "one")
    assert fleet.set.waiting == 1


def test_a_gap_asks_for_a_snapshot_until_one_comes() -> None:
    fleet = Fleet("ab")
    fleet.tell("a", stored=b"".join(prompt(1)))
    assert fleet.tell("a", skip=1)
    assert fleet.chosen_by_prefix(prompt(1)) == "a"  # as far as is known
    assert fleet.tell("a")
    assert not fleet.tell("a", snapshot=True, stored=b"".join(prompt(2)))
    assert fleet.chosen_by_prefix(prompt(2)) == "a"
    fleet.tell("a", running=1)
    assert fleet.chosen_by_prefix(prompt(1)) == "b"


def test_a_replica_that_starts_over_has_nothing() -> None:
    fleet = Fleet("ab")
    fleet.tell("a", stored=b"".join(prompt(1)))
    assert not fleet.tell("a", epoch="2", sequence=1, snapshot=True, running=1)
    assert fleet.chosen_by_prefix(prompt(1)) == "b"


def test_an_unknown_replica_is_chosen_from_at_once_and_asked_for_a_snapshot() -> None:
    fleet = Fleet()
    assert fleet.set.report(report("a", sequence=7))
    assert fleet.choose(prompt(1), "one") == "a"
    assert not fleet.set.report(report("a", sequence=8, snapshot=True))


def test_a_report_that_was_overtaken_changes_nothing() -> None:
    fleet = Fleet("a")
    fleet.tell("a", running=1)
    late = report("a", sequence=1, running=9, stored=b"".join(prompt(1)))
    assert not fleet.set.report(late)
    assert fleet.set.running == 1


def test_a_replica_that_is_gone_is_forgotten() -> None:
    fleet = Fleet("ab")
    fleet.tell("a", running=5)
    fleet.choose(prompt(1), "one")
    fleet.set.keep_only({"a"})
    assert fleet.set.replicas == ["a"]
    assert fleet.set.waiting == 0
    assert fleet.choose(prompt(1), "one") == "a"


def test_what_was_sent_to_a_replica_is_forgotten_with_it_even_if_it_reports_again() -> None:
    fleet = Fleet("a")
    fleet.choose(prompt(1), "one")
    fleet.set.keep_only(set())
    fleet.tell("a", snapshot=True)
    fleet.tell("a", received=("one",), running=1)
    assert (fleet.set.waiting, fleet.set.running) == (0, 1)


def test_a_silent_replica_is_chosen_only_when_all_are_silent() -> None:
    fleet = Fleet("ab")
    fleet.tell("a", stored=b"".join(prompt(1)))
    fleet.now += REPORT_TIMEOUT_S
    fleet.tell("b")
    assert fleet.choose(prompt(1), "one") == "b"
    fleet.now += 2 * REPORT_TIMEOUT_S
    assert fleet.choose(prompt(1), "two") in {"a", "b"}


def test_who_has_another_card_is_chosen_only_when_none_has_the_one_asked_for() -> None:
    fleet = Fleet("abc")
    fleet.tell("a", version="2", stored=b"".join(prompt(1)))
    for name in "bc":
        fleet.tell(name, version="1")
    of_none, of_one, of_two = (fleet.choose(prompt(1), v, "", v) for v in "321")
    assert (of_none, of_one) == ("a", "a")
    assert of_two in {"b", "c"}
    fleet.now += REPORT_TIMEOUT_S
    fleet.tell("b")
    fleet.tell("c")
    assert fleet.choose(prompt(1), "one", "", "2") == "a"


def test_a_model_has_the_card_of_most_of_its_replicas() -> None:
    fleet = Fleet("abc")
    versions = [fleet.set.version]
    for name, version in zip("abc", "122", strict=True):
        fleet.tell(name, version=version)
        versions.append(fleet.set.version)
    fleet.set.keep_only(set())
    assert [*versions, fleet.set.version] == ["", "", "1", "2", ""]


def test_a_conversation_stays_where_it_was() -> None:
    fleet = Fleet("abcd")
    for number in range(12):
        turns = [fleet.choose((), f"{number} {turn}", f"chat {number}") for turn in "12"]
        assert turns[0] == turns[1]


def test_those_that_sleep_are_left_to_sleep_and_all_of_them_are_asleep() -> None:
    fleet = Fleet("ab")
    fleet.tell("a", sleeping=True)
    assert not fleet.set.asleep
    assert {fleet.choose(prompt(n, 1), str(n)) for n in range(5)} == {"b"}
    fleet.tell("b", sleeping=True)
    assert fleet.set.asleep


def test_what_a_replica_reports_as_pending_sends_others_elsewhere() -> None:
    fleet = Fleet("ab")
    fleet.tell("a", stored=b"".join(prompt(1, 100)), pending_tokens=200 * PAGE_SIZE)
    assert fleet.choose(prompt(1, 100), "one") == "b"


def test_a_quiet_fleet_shares_the_work_in_the_long_run() -> None:
    fleet = Fleet("ab")
    common = prompt(1, 20)
    fleet.tell("a", stored=b"".join(common))
    counts = {"a": 0, "b": 0}
    for number in range(200):
        chosen = fleet.chosen_by_prefix([*common, *prompt(number, 5)])
        assert chosen is not None
        counts[chosen] += 1
    assert min(counts.values()) > 60


def test_its_metrics_carry_the_model_and_the_replica() -> None:
    fleet = Fleet("ab")
    fleet.tell("a", stored=b"".join(prompt(1, 10)))
    fleet.choose(prompt(1, 10), "one")
    text = render([({"replica": "router"}, fleet.set.families())]).decode()
    assert 'manta_router_index_pages{model="m",replica="router"} 10.0' in text
    assert 'manta_router_choices_total{model="m",replica="router"} 1.0' in text
    assert 'manta_router_overlap_tokens_total{model="m",replica="router"} 160.0' in text
    assert 'manta_router_coming_requests{model="m",replica="a"} 1.0' in text
    assert 'manta_router_coming_requests{model="m",replica="b"} 0.0' in text


def run(policy: str, seed: int) -> Outcome:
    trace = multi_turn(seed, n=200, per_second=4.0)
    return simulate(trace, POLICIES[policy], n_replicas=4, n_pages=4096, seed=seed)


@pytest.mark.parametrize("seed", [0, 1])
def test_chats_hit_as_an_oracle_would_have_them_and_the_work_is_even(seed: int) -> None:
    ours, oracle, blind = (run(name, seed) for name in ("prefix-affine", "oracle", "power of two"))
    assert ours.hit_rate >= 0.95 * oracle.hit_rate
    assert ours.imbalance < 1.2
    assert ours.hit_rate > blind.hit_rate


def test_questions_about_few_documents_find_them() -> None:
    trace = shared_prompts(0, n=300, per_second=8.0)
    ours, oracle = (
        simulate(trace, POLICIES[name], n_replicas=4, n_pages=8192, seed=0)
        for name in ("prefix-affine", "oracle")
    )
    assert ours.hit_rate >= 0.95 * oracle.hit_rate


def test_an_index_without_room_for_all_still_finds_most() -> None:
    trace = multi_turn(0, n=60, per_second=2.0)
    narrow = RoutingSettings(max_index_pages=1500)
    ample, cramped = (
        simulate(trace, partial(PrefixAffine, settings=routing), n_replicas=4, n_pages=4096, seed=0)
        for routing in (RoutingSettings(), narrow)
    )
    assert cramped.hit_rate > 0.9 * ample.hit_rate


def test_the_work_of_a_choice_does_not_grow_with_the_index() -> None:
    rng = random.Random(0)
    small, large = Fleet("ab"), Fleet("ab")
    for _ in range(300):
        large.tell("a", stored=b"".join(rng.randbytes(16) for _ in range(100)))
    costs = []
    for fleet in (small, large):
        fleet.tell("b", stored=b"".join(prompt(1)))
        costs.append(calls(partial(fleet.set.choose, prompt(1), "one")))
    assert costs[0] == costs[1]


def holding(pages: int, running: int = 40) -> tuple[Fleet, list[bytes]]:
    """Replicas of which `a` holds so many pages of a prompt, and runs so many sequences."""
    fleet, hashes = Fleet("ab"), prompt(1)
    fleet.tell("a", stored=b"".join(hashes[:pages]), running=running, pull_cost=0.1)
    fleet.tell("b", pull_cost=0.1)
    return fleet, hashes


def test_a_busy_holder_of_a_prefix_is_pulled_from() -> None:
    fleet, hashes = holding(150)
    assert fleet.set.choose(hashes, "one") == ("b", ("a", 150))
    fleet, hashes = holding(150, running=0)
    assert fleet.set.choose(hashes, "one") == ("a", None)


@pytest.mark.parametrize("name", ["a", "b"])
def test_nothing_is_pulled_where_one_of_the_two_does_not(name: str) -> None:
    fleet, hashes = holding(150)
    fleet.tell(name, pull_cost=0.0)
    assert fleet.set.choose(hashes, "one") == ("a", None)


@pytest.mark.parametrize(("pages", "cost"), [(15, 0.1), (150, 1.5)])
def test_what_is_computed_as_fast_is_not_pulled(pages: int, cost: float) -> None:
    fleet, hashes = holding(pages)
    fleet.tell("b", pull_cost=cost)
    assert fleet.set.choose(hashes, "one").holder is None


def test_nothing_is_pulled_that_was_not_reported_yet() -> None:
    fleet, hashes = holding(0)
    assert fleet.set.choose(hashes, "one").replica_id == "b"
    fleet.tell("b", running=300, received=("one",))  # it computes them now
    assert fleet.set.choose(hashes, "two") == ("a", None)
