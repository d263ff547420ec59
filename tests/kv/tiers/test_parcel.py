"""Parcels of pages: what is taken out is what was cached, or an error."""

import numpy as np
import pytest

from kv.arrivals import PageKey
from kv.layout import LayerShape
from kv.pool import PrefixCache
from kv.storage import Storage
from kv.tiers import parcel as parcels
from kv.tiers.parcel import NOTHING, CorruptParcelError, PageReader, Parcel, unpack

LAYOUT = (LayerShape(1, 4), LayerShape(2, 4, 6))  # of two groups, whose pages differ in length
STORAGE = Storage(LAYOUT, 6, 2)
KEYS = [PageKey(bytes([number]) * 16, number % 2) for number in range(6)]
LENGTHS = [STORAGE.group_bytes(key.group) for key in KEYS]


class FilledAnew(PrefixCache):
    """A page is evicted, and has the same key again, between two looks at it."""

    def key_of(self, page: int) -> PageKey | None:
        found = super().key_of(page)
        if page == 3:
            key = self.remove(page)
            self.insert(key.page_hash, page, key.group)
        return found


def reader(known: PrefixCache) -> PageReader:
    """A reader of pages that hold their numbers, from 1 on."""
    for page, key in enumerate(KEYS):
        known.insert(key.page_hash, page, key.group)
        STORAGE.raw_pages()[page] = page + 1
    return PageReader(b"ours", known, STORAGE)


def numbers(parcel: Parcel) -> list[int]:
    """The numbers of a parcel's pages, by what they hold."""
    taken: list[int] = []

    def take(index: int, page: Parcel) -> bool:
        assert len(page) == LENGTHS[index]
        [number] = np.unique(page).tolist()
        taken.append(number - 1)
        return True

    assert unpack(parcel, LENGTHS, take) == len(taken)
    return taken


def test_a_parcel_has_the_leading_pages_that_are_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    known = PrefixCache(2)
    read = reader(known).read
    assert numbers(read(b"ours", KEYS)) == [*range(6)]
    assert numbers(read(b"theirs", KEYS)) == numbers(NOTHING) == []
    monkeypatch.setattr(parcels, "PARCEL_BYTES", LENGTHS[0] + LENGTHS[1])
    assert numbers(read(b"ours", KEYS)) == [0, 1]
    monkeypatch.setattr(parcels, "PARCEL_BYTES", 1)
    assert numbers(read(b"ours", KEYS)) == [0]
    known.remove(0)
    assert numbers(read(b"ours", KEYS)) == []


def test_a_page_that_is_filled_anew_while_it_is_copied_is_left_out() -> None:
    assert numbers(reader(FilledAnew(2)).read(b"ours", KEYS)) == [0, 1, 2]


def test_what_is_not_what_was_sent_is_noticed() -> None:
    sent = reader(PrefixCache(2)).read(b"ours", KEYS)
    for at in range(len(sent)):
        changed = sent.copy()
        changed[at] ^= 64
        with pytest.raises(CorruptParcelError):
            unpack(changed, LENGTHS, lambda index, page: True)
    for n in range(len(sent)):
        with pytest.raises(CorruptParcelError):
            unpack(sent[:n], LENGTHS, lambda index, page: True)
