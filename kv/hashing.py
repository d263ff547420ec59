"""Names the content of KV pages: a page's hash covers its parent's hash and all that is in it.

Free of torch, because routers and ingresses hash prompts too.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

from kv.content import DIGEST_BYTES, PLAIN, Content

# A root and a page never share a hash: a client's salt could else spell another client's page.
PAGE = b"manta page"


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
