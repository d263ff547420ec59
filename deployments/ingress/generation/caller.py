"""The caller of a request and its conversation as digests, for fairness and routing.

The same headers and fields give the same digests in every process.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

from starlette.requests import Request

from deployments.ingress.http.auth import API_KEY_STATE

CONVERSATION_ID = "x-conversation-id"
SESSION_HEADERS = ("x-session-id", "x-dynamo-session-id")
USER_FIELDS = ("safety_identifier", "user")
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Caller:
    """`session` is "" for a request that names no conversation, `owner` as `owner_of` says."""

    client: str
    session: str
    owner: str

    def salt(self, own: str) -> str:
        """What the request's cached prefixes are salted with, where `own` is what it asks for."""
        return _digest("prefix", self.owner, own) if self.owner else own


@dataclass(frozen=True, slots=True)
class Sender:
    """What a response builder learns of who sent a request: `headers` have its id, too."""

    headers: Mapping[str, str]
    owner: str  # as `owner_of` says


def owner_of(http: Request) -> str:
    """A digest of the API key that a request came with; "" for all where no keys are set.

    What a request leaves behind belongs to it: stored responses, kept streams, cached prefixes.
    """
    key = http.scope.get("state", {}).get(API_KEY_STATE)
    return "" if key is None else _digest("key", key)


def connection_of(http: Request, *, sees_peers: bool) -> str:
    """The client of a connection: the holder of its API key, or else an address.

    A client's own word for where it is from (X-Forwarded-For) is not taken; uvicorn takes that of
    a proxy on this machine. Where `sees_peers` is off, all clients without keys are one.
    """
    if owner := owner_of(http):
        return owner
    if sees_peers and http.client is not None:
        return _digest("address", http.client.host)
    return _digest("anybody")


def caller_of(http: Request, body: object, connection: str, owner: str) -> Caller:
    """A user that the body names counts as one of the users of this connection only.

    Users: `safety_identifier`, `user`, or Anthropic's `metadata.user_id`. Conversations:
    X-Session-Id, X-Dynamo-Session-Id, `prompt_cache_key`, X-Conversation-Id; the first one counts.
    """
    fields = body if isinstance(body, Mapping) else {}
    user = _first(*(fields.get(name) for name in USER_FIELDS), _user_id(fields))
    client = _digest("user", connection, user) if user else connection
    headers = (http.headers.get(name) for name in SESSION_HEADERS)
    conversation = http.headers.get(CONVERSATION_ID)
    session = _first(*headers, fields.get("prompt_cache_key"), conversation)
    digest = _digest("session", client, session) if session else ""
    return Caller(client, digest, owner)


def _user_id(fields: Mapping[str, object]) -> object:
    metadata = fields.get("metadata")
    return metadata.get("user_id") if isinstance(metadata, Mapping) else None


def _first(*values: object) -> str:
    return next((value for value in values if isinstance(value, str) and value), "")


def _digest(*parts: str) -> str:
    digest = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b" % (len(encoded), encoded))
    return digest.hexdigest()
