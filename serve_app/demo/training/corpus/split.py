"""Chance with a side: what is held out for evaluation is never drawn for training.

The law: a text is held out by a rule on its letters and digits alone (one in eight), and so are
phrasings; a `Draw` of one side never yields what belongs to the other.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from random import Random
from typing import TypeVar

ONE_IN = 8
T = TypeVar("T")


def normal(text: str) -> str:
    """Returns what stays the same however carelessly a text is typed."""
    return " ".join("".join(c if c.isalnum() else " " for c in text.casefold()).split())


@lru_cache(maxsize=1 << 18)
def rank(text: str) -> int:
    return int.from_bytes(blake2b(normal(text).encode(), digest_size=6).digest())


def is_held(text: object) -> bool:
    return rank(str(text)) % ONE_IN == 0


@lru_cache(maxsize=4096)
def parted(phrasings: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Phrasings for training and for evaluation; neither is empty, whatever the letters say.

    Phrasings that differ in case or punctuation alone stay together. The first of many is how most
    people ask: it is for training.
    """
    ranked = sorted({normal(each) for each in phrasings}, key=rank)
    held = set(ranked[: -(-len(ranked) // ONE_IN)])
    if len(held) > 1:
        held.discard(normal(phrasings[0]))
    assert 0 < len(held) < len(ranked), f"too few phrasings to hold one out: {phrasings}"
    ours = tuple(each for each in phrasings if normal(each) not in held)
    return ours, tuple(each for each in phrasings if normal(each) in held)


class SeededDraw(Random):
    """A stream of choices for one side, a function of its seed."""

    def __init__(self, seed: int | str, held: bool = False) -> None:
        super().__init__(f"{seed} {held}")
        self.held = held

    def ask(self, phrasings: Sequence[str]) -> str:
        """A phrasing of this side."""
        return self.choice(parted(tuple(phrasings))[self.held])

    def new(self, make: Callable[[Random], T]) -> T:
        """Makes values until one belongs to this side; its `str` decides."""
        while True:
            made = make(self)
            if is_held(made) == self.held:
                return made

    def one(self, items: Sequence[T]) -> T:
        """An item of this side; the sequence has to have some of each."""
        return self.choice(self.ours(items))

    def ours(self, items: Sequence[T]) -> list[T]:
        found = [item for item in items if is_held(item) == self.held]
        assert found, f"nothing for this side in {items}"
        return found

    def some(self, items: Sequence[T], count: int) -> list[T]:
        """Different items of this side."""
        return self.sample(self.ours(items), count)

    def chance(self, share: float) -> bool:
        return self.random() < share
