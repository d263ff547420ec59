"""The inputs of a sequence's keys and values besides its tokens, as part of its pages' hashes.

Two sequences share a page only if all that made it is equal. Free of torch, because routers and
ingresses hash prompts too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import pack

DIGEST_BYTES = 16
ROOT = b"manta root"  # keeps roots apart from `kv.hashing.PAGE`


@dataclass(frozen=True, slots=True)
class Adapter:
    """A LoRA adapter that changes what the layers compute.

    path: a folder that the replica can read. Two paths to the same files are the same adapter.
    digest: of its files. scale: multiplies what it adds; 0 is as good as no adapter.
    name: that clients know it by, for messages to them.
    """

    path: str = field(compare=False)
    digest: bytes
    scale: float
    name: str = field(default="", compare=False)

    @property
    def label(self) -> str:
        return self.name or self.path


@dataclass(frozen=True, slots=True)
class PlaceholderRange:
    """An image or a sound: its vectors stand at the positions `first` to `end` (excluded) of the
    sequence. `digest` is of all that the vectors are made of.

    columns: tokens of a line, where their positions go by line and column; else 0. They follow
    from what was digested.
    """

    digest: bytes
    first: int
    end: int
    columns: int = 0


@dataclass(frozen=True, slots=True)
class Content:
    """All that makes a sequence besides its tokens.

    salt: keeps apart what is otherwise equal. Who gives another one finds nothing of it cached.
    media: in the order of their positions.
    """

    salt: str = ""
    adapters: tuple[Adapter, ...] = ()
    media: tuple[PlaceholderRange, ...] = ()

    def root(self) -> bytes:
        """The parent of the first page: DIGEST_BYTES bytes for all that changes every page."""
        salt = self.salt.encode("utf-8", "surrogatepass")
        adapters = (pack("<d", adapter.scale) + adapter.digest for adapter in self.adapters)
        return blake2b(_joined((salt, *adapters)), digest_size=DIGEST_BYTES, person=ROOT).digest()

    def extra(self, first: int, end: int) -> bytes:
        """Returns what the tokens from `first` to `end` (excluded) do not say: which parts of which
        media are there. Empty for text alone."""
        if not self.media:
            return b""
        media = (medium for medium in self.media if medium.first < end and first < medium.end)
        return _joined(
            pack("<qq", medium.first - first, medium.end - first) + medium.digest
            for medium in media
        )


PLAIN = Content()  # of text alone


def _joined(parts: Iterable[bytes]) -> bytes:
    """Different parts give different bytes."""
    return b"".join(pack("<q", len(part)) + part for part in parts)
