"""Pages of another replica: what comes of a request is what would have come without, whatever
fails.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.fingerprint import NO_IDENTITY, WeightsIdentity
from deployments.engine.needs import kv_tier
from kv.tiers.parcel import NOTHING, Parcel
from tests.engine import laws
from tests.engine.drive import PATIENCE_S, Engine, engine
from tests.engine.peers import Peer, pulling
from tests.engine.test_laws_layers import needs_states
from tests.engine.tiers.test_disk_tier import LIMITS, LONG, REQUESTS, workload
from tests.engine.workload import salted

ASKED = pulling(REQUESTS[0], 8)
N_FOUND = LONG // 8 * 8  # tokens of the first request's full pages


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, a replica that answers is in time."""
    monkeypatch.setattr(kv_tier, "GRACE_S", PATIENCE_S)


# Windows beside full attention, latents; and full attention alone.
@pytest.mark.parametrize("architecture", ["llama", "gemma3", "deepseek_v3"])
def test_pulled_is_computed(architecture: str) -> None:
    laws.pulled_is_computed(workload(architecture))


@pytest.fixture(scope="module")
def first() -> Iterator[Engine]:
    """A replica that has computed the first request."""
    with engine(limits=LIMITS, pull=Peer()) as running:
        running.run(REQUESTS[0])
        yield running


@pytest.mark.parametrize(
    ("salt", "weights", "n_found"), [("", "", N_FOUND), ("ben", "", 0), ("", "others", 0)]
)
def test_owners_and_weights_find_nothing_of_each_other(
    first: Engine, salt: str, weights: str, n_found: int
) -> None:
    """Whatever a request says of who holds its pages."""
    identity = WeightsIdentity(weights=(weights,)) if weights else NO_IDENTITY
    peer, asked = Peer(first.core.pages), salted(ASKED, salt)
    with engine(limits=LIMITS, pull=peer, identity=identity) as running:
        assert running.run(asked)[0].cached_tokens == n_found
    assert peer.n_asked == 1


def _flip(parcel: Parcel) -> Parcel:
    parcel[len(parcel) // 2] ^= 1
    return parcel


@pytest.mark.parametrize(
    ("send", "n_corrupt"),
    [
        (lambda parcel: NOTHING, 0),
        (_flip, 1),
        (lambda parcel: parcel[:1000], 1),
        (lambda parcel: parcel[:0], 1),
    ],
    ids=["a gap", "a flipped bit", "half of it", "nothing at all"],
)
def test_what_does_not_come_as_it_was_is_computed(
    first: Engine, send: Callable[[Parcel], Parcel], n_corrupt: int
) -> None:
    expected = first.run(REQUESTS[0])[0].token_ids
    with engine(limits=LIMITS, pull=Peer(first.core.pages, send)) as running:
        [outcome] = running.run(ASKED)
        assert outcome.error is None
        assert outcome.token_ids == expected
        assert outcome.cached_tokens < N_FOUND
        assert running.core.stats().kv_remote_corrupt == n_corrupt


def test_a_replica_that_says_nothing_is_not_waited_for(
    first: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kv_tier, "GRACE_S", 0.05)
    expected = first.run(REQUESTS[0])[0].token_ids
    with engine(limits=LIMITS, pull=Peer(first.core.pages, is_silent=True)) as running:
        [outcome] = running.run(ASKED)
        assert (outcome.token_ids, outcome.cached_tokens) == (expected, 0)


def test_what_is_short_or_cached_here_is_not_asked_for(first: Engine) -> None:
    short = pulling(replace(ASKED, prompt_ids=ASKED.prompt_ids[:250]), 8)
    peer = Peer(first.core.pages)
    with engine(limits=LIMITS, pull=peer) as running:
        running.run(short, REQUESTS[1])
        running.run(pulling(REQUESTS[1], 8))
    assert peer.n_asked == 0


def test_who_is_told_of_no_holder_waits_for_what_another_task_pulls(first: Engine) -> None:
    """The router takes pages for cached here that it has had pulled."""
    with engine(limits=LIMITS, pull=Peer(first.core.pages)) as running:
        both = running.run_together(ASKED, replace(REQUESTS[0], request_id="another"))
        assert [outcome.cached_tokens for outcome in both] == [N_FOUND, N_FOUND]
        durations = running.core.stats().kv_remote_restore_seconds
        assert durations is not None
        assert sum(durations.counts) == 1


@needs_states
def test_what_can_not_be_sent_is_refused_by_name() -> None:
    with engine("mamba2", pull=Peer()) as running:
        assert running.core.pages is None
    limits = replace(LIMITS, pull_prefixes=True)
    with (
        pytest.raises(UnsupportedModelError, match="pull-prefixes: a model whose layers keep st"),
        engine("mamba2", limits=limits, pull=Peer()),
    ):
        pass
