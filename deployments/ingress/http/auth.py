"""API keys. They are compared in constant time, and never shown."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from hmac import compare_digest
from types import MappingProxyType

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.contract.errors import ErrorKind, RequestError
from deployments.ingress.http.errors import ErrorFormat, error_response

API_KEY_STATE = "api_key"  # where a request's state has its valid key
OWNER_NAME_STATE = "owner_name"  # and the key's name, if it has one
NO_NAMES: Mapping[str, str] = MappingProxyType({})
KEY_NEEDED = (
    "A valid API key is needed: send it as `Authorization: Bearer KEY` or as `x-api-key: KEY`"
)


@dataclass(frozen=True, slots=True)
class PublicFolder:
    """All paths that begin with `prefix`, but for those that begin with `private`."""

    prefix: str
    private: str

    def __contains__(self, path: object) -> bool:
        return (
            isinstance(path, str)
            and path.startswith(self.prefix)
            and not path.startswith(self.private)
        )


class Auth:
    """Paths in `public`, and OPTIONS, which browsers send without a key, are open to everybody.
    The handshake of a WebSocket needs a key as a request does.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Sequence[str],
        public: Container[str],
        envelope: ErrorFormat,
        owners: Mapping[str, str] = NO_NAMES,
    ) -> None:
        """`owners` has the names of keys."""
        self._app = app
        self._digests = [_digest(key.encode()) for key in keys]
        self._public = public
        self._envelope = envelope
        self._owners = owners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_open(scope):
            await self._app(scope, receive, send)
            return
        key = next(filter(self._knows, offered_keys(Headers(scope=scope))), None)
        if key is not None:
            scope["state"][API_KEY_STATE] = key
            scope["state"][OWNER_NAME_STATE] = self._owners.get(key)
            await self._app(scope, receive, send)
            return
        error = RequestError(ErrorKind.AUTHENTICATION, KEY_NEEDED)
        response = error_response(error, self._envelope, scope["state"]["request_id"])
        await response(scope, receive, send)

    def _is_open(self, scope: Scope) -> bool:
        return scope.get("method") == "OPTIONS" or scope["path"] in self._public

    def _knows(self, key: str) -> bool:
        """All keys are compared, so that the time does not tell which one matched."""
        digest = _digest(key.encode("latin-1"))
        return sum(compare_digest(digest, known) for known in self._digests) > 0


def offered_keys(headers: Headers) -> list[str]:
    """The keys that a request brings, in either form."""
    schemes = (value.partition(" ") for value in headers.getlist("authorization"))
    bearers = [key.strip() for scheme, _, key in schemes if scheme.lower() == "bearer"]
    return bearers + headers.getlist("x-api-key")


def _digest(key: bytes) -> bytes:
    """Has one length for all keys."""
    return sha256(key).digest()
