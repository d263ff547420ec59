"""Names the content of KV pages: a page's hash covers its parent's hash and its tokens.

Free of torch, because routers and ingresses hash prompts too.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b

DIGEST_BYTES = 16


def root_hash(salt: str = "") -> bytes:
    """The parent of a sequence's first page: whatever else than tokens changes a page's content."""
    return blake2b(salt.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()


def page_hash(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """The hash of one full page whose predecessor has hash `parent`."""
    return blake2b(parent + array("q", token_ids).tobytes(), digest_size=DIGEST_BYTES).digest()


def page_hashes(token_ids: Sequence[int], page_size: int, salt: str = "") -> list[bytes]:
    """Hashes of the full pages of a sequence, first page first."""
    hashes: list[bytes] = []
    parent = root_hash(salt)
    for end in range(page_size, len(token_ids) + 1, page_size):
        parent = page_hash(parent, token_ids[end - page_size : end])
        hashes.append(parent)
    return hashes
