"""Names the content of KV pages: a page's hash covers its parent's hash, its tokens, and whatever
else its keys and values are made of.

Two sequences share a page only if all that made it is equal. Free of torch, because routers and
ingresses hash prompts too.
"""

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from struct import pack

DIGEST_BYTES = 16
ROOT = b"manta root"  # keeps roots apart from `PAGE`
# A root and a page never share a hash: a client's salt could else spell another client's page.
PAGE = b"manta page"


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


def page_hash(parent: bytes, token_ids: bytes, extra: bytes = b"") -> bytes:
    """The hash of one full page, of 64-bit ids, whose predecessor has hash `parent`. `extra` is as
    `Content.extra` says."""
    return blake2b(parent + token_ids + extra, digest_size=DIGEST_BYTES, person=PAGE).digest()


def page_hashes(token_ids: Sequence[int], page_size: int, content: Content = PLAIN) -> list[bytes]:
    """Hashes of the full pages of a sequence, first page first; `page_size` is in tokens."""
    hashes: list[bytes] = []
    parent, raw = content.root(), array("q", token_ids).tobytes()
    width = array("q").itemsize
    for end in range(page_size, len(raw) // width + 1, page_size):
        first = end - page_size
        page = raw[first * width : end * width]
        parent = page_hash(parent, page, content.extra(first, end))
        hashes.append(parent)
    return hashes
