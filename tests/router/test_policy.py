"""The choice of a replica, without Ray."""

from hypothesis import given
from hypothesis import strategies as st

from deployments.model.settings import ModelSettings
from deployments.router.applications import reason
from deployments.router.index import PrefixIndex
from deployments.router.policy import Candidate, CostWeights, choose
from deployments.router.registry import ModelEntry
from deployments.wire import ModelState, ReplicaLoad
from kv.hashing import page_hashes

WEIGHTS = CostWeights(active=8.0)


def load(replica_id: str, running: int = 0) -> ReplicaLoad:
    return ReplicaLoad(replica_id=replica_id, running=running, waiting=0)


def entry(*loads: ReplicaLoad) -> ModelEntry:
    made = ModelEntry(ModelSettings(name="m", path="/m"))
    made.ready()
    made.observe(loads)
    return made


def test_the_replica_that_holds_the_prefix_is_chosen() -> None:
    candidates = [Candidate("a", 0, 0), Candidate("b", 60, 2)]
    assert choose(candidates, 62, WEIGHTS) == "b"


def test_a_busy_owner_of_a_short_prefix_is_not_worth_the_wait() -> None:
    candidates = [Candidate("a", 0, 0), Candidate("b", 4, 20)]
    assert choose(candidates, 8, WEIGHTS) == "a"


def test_without_replicas_there_is_no_choice() -> None:
    assert choose([], 3, WEIGHTS) is None


def test_a_burst_spreads_over_idle_replicas() -> None:
    model = entry(load("a"), load("b"), load("c"), load("d"))
    chosen = [model.choose(page_hashes([n] * 64, 16), WEIGHTS) for n in range(8)]
    assert sorted(c for c in chosen if c) == sorted("abcd" * 2)


def test_requests_with_one_prefix_meet_on_one_replica() -> None:
    model = entry(load("a"), load("b"))
    prefix = list(range(1600))
    first = model.choose(page_hashes(prefix, 16), WEIGHTS)
    assert all(model.choose(page_hashes([*prefix, n] * 2, 16), WEIGHTS) == first for n in range(4))


def test_a_model_without_replicas_is_not_ready() -> None:
    model = entry(load("a"))
    states = [model.status.state]
    model.observe([])
    states.append(model.status.state)
    assert states == [ModelState.READY, ModelState.LOADING]
    assert model.choose((), WEIGHTS) is None


def test_a_replica_that_is_gone_is_forgotten() -> None:
    model = entry(load("a", 5), load("b"))
    hashes = page_hashes(list(range(160)), 16)
    assert model.choose(hashes, WEIGHTS) == "b"
    model.observe([load("a", 5)])
    assert model.choose(hashes, WEIGHTS) == "a"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 12)), max_size=60))
def test_the_index_stays_bounded_and_knows_what_it_was_told_last(
    inserts: list[tuple[int, int]],
) -> None:
    index = PrefixIndex(max_pages=16)
    for owner, pages in inserts:
        hashes = page_hashes([owner] * pages * 4, 4)
        index.insert(f"r{owner}", hashes)
        assert len(index) <= 16
        assert index.overlap(hashes) == {f"r{owner}": pages}


def test_eviction_takes_the_end_of_a_prefix_first() -> None:
    index = PrefixIndex(max_pages=4)
    old, new = page_hashes([1] * 12, 4), page_hashes([2] * 8, 4)
    index.insert("a", old)
    index.insert("b", new)
    assert index.overlap(old) == {"a": 2}
    assert index.overlap(new) == {"b": 2}


def test_the_reason_of_a_failed_load_is_what_its_exception_says() -> None:
    message = (
        "Traceback (most recent call last):\n  File x\nOSError: no such model\nCheck its name."
    )
    assert reason(message) == "no such model Check its name."
    assert reason("") == "the model did not start"
