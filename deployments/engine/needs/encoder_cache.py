"""Vectors of media, by the digest of what they were made of. The least recently used ones go first
when they are more than fit."""

from collections import OrderedDict

from torch import Tensor


class EncoderCache:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._n_bytes = 0
        self._vectors: OrderedDict[bytes, Tensor] = OrderedDict()

    def get(self, digest: bytes) -> Tensor | None:
        """[ids of the medium, hidden]"""
        if (found := self._vectors.get(digest)) is not None:
            self._vectors.move_to_end(digest)
        return found

    def put(self, digest: bytes, vectors: Tensor) -> None:
        """Adds the vectors of a medium that it does not hold.

        Vectors that are larger than all its room are left out.
        """
        if vectors.nbytes > self._max_bytes:
            return
        self._vectors[digest] = vectors
        self._n_bytes += vectors.nbytes
        while self._n_bytes > self._max_bytes:
            self._n_bytes -= self._vectors.popitem(last=False)[1].nbytes
