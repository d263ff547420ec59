"""Which bundles go first: no owner pays for another one, and the ends of chains go before them."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kv.arrivals import PageKey
from kv.tiers.bundle import owner_tag
from kv.tiers.index import Bundle, BundleIndex
from tests.effort import tries
from tests.kv.tiers.bundles import chain, make


class Part(NamedTuple):
    """The pages of a chain from `first` on."""

    seed: int
    first: int
    owner: str


class IndexMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.index = BundleIndex()
        self.parts: dict[str, Part] = {}  # by name
        self.now = 0.0

    @rule(
        seed=st.integers(0, 3),
        first=st.integers(0, 2),
        owner=st.sampled_from("abc"),
        own=st.booleans(),
    )
    def add(self, seed: int, first: int, owner: str, own: bool) -> None:
        self.now += 1
        hashes = chain(3, seed)[: first + 1]
        header, image = make(hashes, first, owner)
        name = f"{'own' if own else 'other'}/{header.name}"
        self.index.add(
            Bundle(name, owner_tag(owner).hex(), len(image), self.now, header if own else None)
        )
        self.parts[name] = Part(seed, first, owner)

    @rule(data=st.data())
    @precondition(lambda self: self.parts)
    def remove(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.parts)))
        bundle = self.index.get(name)
        assert bundle is not None
        self.index.remove(bundle)
        self.index.remove(bundle)
        del self.parts[name]

    @rule(data=st.data())
    @precondition(lambda self: self.parts)
    def use(self, data: st.DataObject) -> None:
        """All of a chain before a bundle is used with it."""
        name = data.draw(st.sampled_from(sorted(self.parts)))
        bundle = self.index.get(name)
        assert bundle is not None
        self.now += 1
        self.index.touch(bundle, self.now)
        if bundle.header is not None:
            assert bundle.used == self.now
            before = self.index.lookup(PageKey(bundle.header.parent))
            assert before is None or before.bundle.used == self.now

    @rule(max_bytes=st.integers(0, 40_000))
    def evict(self, max_bytes: int) -> None:
        gone = self.index.to_evict(max_bytes)
        for bundle in gone:
            held = {
                owner: sum(other.n_bytes for other in self.index if other.owner == owner)
                for owner in {other.owner for other in self.index}
            }
            assert held[bundle.owner] == max(held.values()), "an owner paid for another one"
            of_owner = [other for other in self.index if other.owner == bundle.owner]
            assert bundle.order == min(other.order for other in of_owner)
            self.index.remove(bundle)
            del self.parts[bundle.name]
        assert self.index.n_bytes <= max_bytes
        assert not gone or self.index.n_bytes + gone[-1].n_bytes > max_bytes

    @invariant()
    def what_was_added_is_found(self) -> None:
        self.index.check()
        own = [part for name, part in self.parts.items() if name.startswith("own")]
        for part in own:
            assert PageKey(chain(3, part.seed)[part.first]) in self.index
        assert {bundle.name for bundle in self.index} == self.parts.keys()


TestIndex = IndexMachine.TestCase
TestIndex.settings = settings(max_examples=tries(25, 200), stateful_step_count=30, deadline=None)


def test_the_end_of_a_chain_goes_before_its_beginning() -> None:
    index, hashes = BundleIndex(), chain(6)
    for first in (0, 2, 4):
        header, image = make(hashes[: first + 2], first)
        index.add(Bundle(f"{first}", "", len(image), float(first), header))
    last = index.get("4")
    assert last is not None
    assert len(index.touch(last, 9.0)) == 3
    assert [bundle.name for bundle in index.to_evict(0)] == ["4", "2", "0"]
