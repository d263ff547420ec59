"""What stands in the signature of a thought: nothing secret, and enough to give it back."""

import base64
import binascii
import hashlib
import zlib

from deployments.ingress.errors import refused

SEEN = "manta-seen-"  # a digest follows
HELD = "manta-held-"  # the thought itself follows, compressed
MOST_CHARACTERS = 4 << 20  # of a thought that was held


def sign(thought: str, *, shown: bool) -> str:
    """The server keeps nothing: a thought that is not shown travels in its signature."""
    if shown:
        return SEEN + _text(hashlib.sha256(thought.encode()).digest())
    return HELD + _text(zlib.compress(thought.encode()))


def thought_of(thinking: str, signature: str, param: str) -> str:
    """The thought as the model had it; what another server signed says nothing here."""
    if thinking or not signature.startswith(HELD):
        return thinking
    try:
        packed = base64.urlsafe_b64decode(signature.removeprefix(HELD))
        unpacking = zlib.decompressobj()
        thought = unpacking.decompress(packed, MOST_CHARACTERS)
        if not unpacking.eof:
            raise refused(f"`{param}` is cut or too long", param)
        return thought.decode()
    except (binascii.Error, zlib.error, ValueError) as failure:
        raise refused(f"`{param}` is none that this server gave", param) from failure


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode()
