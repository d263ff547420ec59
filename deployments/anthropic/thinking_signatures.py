"""Signatures of thinking blocks: a digest of the text, or the compressed text itself."""

import base64
import binascii
import hashlib
import zlib

from deployments.contract.errors import refused

SEEN = "manta-seen-"  # a digest follows
STORED = "manta-held-"  # the compressed text follows
MAX_THINKING_BYTES = 4 << 20  # of the decompressed thinking of one request


def sign(thought: str, *, shown: bool) -> str:
    """The server is stateless: thinking that is not shown is stored in its signature."""
    if shown:
        return SEEN + _text(hashlib.sha256(thought.encode()).digest())
    return STORED + _text(zlib.compress(thought.encode()))


def has_thinking(thinking: str, signature: str) -> bool:
    """Whether the signature holds the text. Signatures of other servers do not."""
    return not thinking and signature.startswith(STORED)


class SignedThoughts:
    """Decompresses the thinking in the signatures of one request. The total is bounded, because few
    bytes may decompress to very many.
    """

    def __init__(self) -> None:
        self._room = MAX_THINKING_BYTES

    def thought_of(self, signature: str, param: str) -> str:
        """Raises Refused."""
        try:
            packed = base64.urlsafe_b64decode(signature.removeprefix(STORED))
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
