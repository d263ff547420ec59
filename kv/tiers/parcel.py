"""Pages as they are sent from one cache to another: a parcel is one array of bytes.

It has the bytes of its pages, the CRC-32 of each, and how many there are. Sender and receiver know
the lengths of pages, since they are of one namespace.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from kv.arrivals import PageKey
from kv.pool import PrefixCache

if TYPE_CHECKING:  # it imports torch
    from kv.storage import Storage

PARCEL_BYTES = 16 << 20  # of pages, unless a single one has more
MAX_KEYS = 4096
NUMBER = np.dtype("<u4")

Parcel = NDArray[np.uint8]


class PageReader:
    """Reads pages of a cache on any thread, and holds up nobody.

    What can be found is immutable. A page that is taken for new content meanwhile is noticed behind
    its copy, for it can't be found any more by then.
    """

    def __init__(self, namespace: bytes, known: PrefixCache, storage: "Storage") -> None:
        self.namespace = namespace
        self._known, self._pages = known, storage.raw_pages()
        self._lengths = [storage.group_bytes(group) for group in range(len(storage.groups))]

    def read(self, namespace: bytes, keys: Sequence[PageKey]) -> Parcel:
        """Packs the first ones of some pages, up to one that is not cached or that would be too
        much. None of another namespace."""
        if namespace != self.namespace:
            return NOTHING
        lengths = [self._lengths[group] for _, group in keys]
        return pack(lengths[: fitting(lengths)], lambda index, out: self._copy(keys[index], out))

    def _copy(self, key: PageKey, out: Parcel) -> bool:
        """Whether a page was copied as it should be."""
        page = self._known.lookup(*key)
        found = None if page is None else self._known.key_of(page)
        if page is None or found != key:
            return False
        out[:] = self._pages[page, : len(out)]
        return self._known.key_of(page) is found


def fitting(lengths: Sequence[int]) -> int:
    """How many of the first pages fit into a parcel; one at least."""
    total = 0
    for n, length in enumerate(lengths[:MAX_KEYS]):
        total += length
        if n and total > PARCEL_BYTES:
            return n
    return min(len(lengths), MAX_KEYS)


def pack(lengths: Sequence[int], copy: Callable[[int, Parcel], bool]) -> Parcel:
    """Packs pages of these lengths, each written by `copy`, up to the first that it has not."""
    parcel = np.empty(sum(lengths) + NUMBER.itemsize * (len(lengths) + 1), dtype=np.uint8)
    checksums, end = list[int](), 0
    for index, length in enumerate(lengths):
        page = parcel[end : end + length]
        if not copy(index, page):
            break
        checksums.append(crc32(page.data))
        end += length
    footer = np.array([*checksums, len(checksums)], dtype=NUMBER).view(np.uint8)
    parcel[end : end + len(footer)] = footer
    return parcel[: end + len(footer)]


NOTHING = pack([], lambda index, out: False)


class CorruptParcelError(ValueError):
    """A parcel is not what was sent."""


def unpack(parcel: Parcel, lengths: Sequence[int], take: Callable[[int, Parcel], bool]) -> int:
    """Gives the pages of a parcel, of which these lengths were asked for, to `take` as long as it
    wants them. Returns how many it took.

    Raises CorruptParcelError at the first that is not what was sent.
    """
    n = int(_numbers(parcel, len(parcel), 1)[0])
    end = sum(lengths[:n])
    if n > len(lengths) or len(parcel) != end + NUMBER.itemsize * (n + 1):
        raise CorruptParcelError("a parcel has another length than it says")
    checksums, begin = _numbers(parcel, end + NUMBER.itemsize * n, n), 0
    for index, length in enumerate(lengths[:n]):
        page = parcel[begin : begin + length]
        begin += length
        if crc32(page.data) != checksums[index]:
            raise CorruptParcelError("a page is not what was sent")
        if not take(index, page):
            return index
    return n


def _numbers(parcel: Parcel, end: int, n: int) -> NDArray[np.uint32]:
    """The `n` numbers that end there."""
    begin = end - NUMBER.itemsize * n
    if begin < 0:
        raise CorruptParcelError("a parcel is too short")
    return np.frombuffer(parcel[begin:end].tobytes(), dtype=NUMBER)
