"""What stands in the signature of a thought: nothing secret, and enough to give it back."""

import base64
import binascii
import hashlib
import zlib

from deployments.ingress.http.errors import refused

SEEN = "manta-seen-"  # a digest follows
HELD = "manta-held-"  # the thought itself follows, compressed
MAX_THINKING_BYTES = 4 << 20  # of the thoughts of one request that were held


def sign(thought: str, *, shown: bool) -> str:
    """The server keeps nothing: a thought that is not shown travels in its signature."""
    if shown:
        return SEEN + _text(hashlib.sha256(thought.encode()).digest())
    return HELD + _text(zlib.compress(thought.encode()))


def is_held(thinking: str, signature: str) -> bool:
    """Whether the thought is in the signature; what another server signed says nothing here."""
    return not thinking and signature.startswith(HELD)


class Unsealing:
    """The thoughts that came back in the signatures of one request, bounded together: a few bytes
    may stand for very many.
    """

    def __init__(self) -> None:
        self._room = MAX_THINKING_BYTES

    def thought_of(self, signature: str, param: str) -> str:
        """Raises Refused."""
        try:
            packed = base64.urlsafe_b64decode(signature.removeprefix(HELD))
            unpacking = zlib.decompressobj()
            thought = unpacking.decompress(packed, self._room + 1)
            if not unpacking.eof or len(thought) > self._room:
                raise refused(f"`{param}` is truncated, or the thinking is too long", param)
            self._room -= len(thought)
            return thought.decode()
        except (binascii.Error, zlib.error, ValueError) as failure:
            raise refused(f"`{param}` was not issued by this server", param) from failure


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode()
