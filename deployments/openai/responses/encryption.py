"""Encrypts thoughts that clients keep, as `encrypted_content`: only the deployment opens them, and
only for the owner whose thoughts they are.
"""

import base64
import binascii
import os

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from deployments.contract.errors import refused

KEY_BYTES, NONCE_BYTES = 32, 12
PURPOSE = b"manta reasoning.encrypted_content"


class ThoughtCipher:
    """`key` is the deployment's. With b"" thoughts can be opened in this process alone."""

    def __init__(self, key: bytes) -> None:
        derivation = HKDF(SHA256(), KEY_BYTES, salt=None, info=PURPOSE)
        self._aead = AESGCM(derivation.derive(key or os.urandom(KEY_BYTES)))

    def for_owner(self, owner: str) -> "OwnedCipher":
        """`owner` as `owner_of` says."""
        return OwnedCipher(self._aead, owner)


class OwnedCipher:
    """Text that was encrypted for another owner is refused as if it were not the deployment's."""

    def __init__(self, aead: AESGCM, owner: str) -> None:
        self._aead = aead
        self._owner = owner.encode()

    def encrypt(self, thought: str) -> str:
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._aead.encrypt(nonce, thought.encode(), self._owner)
        return base64.urlsafe_b64encode(nonce + sealed).decode()

    def decrypt(self, content: str, param: str) -> str:
        """Raises Refused, which names `param`."""
        try:
            sealed = base64.b64decode(content, altchars=b"-_", validate=True)
            nonce, rest = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
            return self._aead.decrypt(nonce, rest, self._owner).decode()
        except (binascii.Error, ValueError, InvalidTag) as failure:
            message = (
                f"`{param}` can't be decrypted: it was changed, or was not made by this server for "
                "this API key"
            )
            raise refused(message, param) from failure
