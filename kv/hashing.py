"""Names the content of KV pages: a page's hash covers its parent's hash and its tokens.

Free of torch, because routers and ingresses hash prompts too.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

DIGEST_BYTES = 16
# A root and a page never share a hash: a client's salt could else spell another client's page.
ROOT, PAGE = b"manta root", b"manta page"


def root_hash(salt: str = "") -> bytes:
    """The parent of a sequence's first page: whatever else than tokens changes a page's content."""
    named = salt.encode("utf-8", "surrogatepass")
    return blake2b(named, digest_size=DIGEST_BYTES, person=ROOT).digest()


def page_hash(parent: bytes, token_ids: bytes) -> bytes:
    """The hash of one full page, of 64-bit ids, whose predecessor has hash `parent`."""
    return blake2b(parent + token_ids, digest_size=DIGEST_BYTES, person=PAGE).digest()


def page_hashes(token_ids: Sequence[int], page_size: int, salt: str = "") -> list[bytes]:
    """Hashes of the full pages of a sequence, first page first; `page_size` is in tokens.

    `salt` names what else than tokens changes the content of pages.
    """
    hashes: list[bytes] = []
    parent, raw = root_hash(salt), array("q", token_ids).tobytes()
    size = page_size * array("q").itemsize
    for end in range(size, len(raw) + 1, size):
        parent = page_hash(parent, raw[end - size : end])
        hashes.append(parent)
    return hashes
