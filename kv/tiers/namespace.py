"""Makes the namespace of a cache's pages: what their content depends on besides their hashes."""

from collections.abc import Iterable
from hashlib import blake2b

import torch

from kv.content import DIGEST_BYTES
from kv.storage import Storage
from kv.tiers.bundle import FORMAT


def make_namespace(storage: Storage, weights: Iterable[str], computed_by: Iterable[str]) -> bytes:
    """DIGEST_BYTES bytes, which change with everything that changes a byte of a page.

    weights: what tells one model's weights, and those of what drafts for it, from others.
    computed_by: the versions and the device that compute, whose last bits may differ.
    """
    described = repr(
        (
            FORMAT,
            [*weights],
            [*computed_by],
            str(storage.dtype),
            [tuple(shape) for shape in storage.layout],
            [(group.layers, group.window) for group in storage.groups],
            storage.page_size,
            storage.device.type,
        )
    )
    return blake2b(described.encode(), digest_size=DIGEST_BYTES, person=b"manta kv").digest()


def processor() -> str:
    """The instructions by which a CPU computes: other ones round otherwise."""
    capability: str = torch.backends.cpu.get_cpu_capability()
    return capability
