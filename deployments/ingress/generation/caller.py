"""The caller of a request and its conversation, for fairness and routing.

The same headers and fields give the same client and session in every process.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from starlette.requests import Request

from deployments.ingress.http.clients import digest_of
from kv.content import Content

CONVERSATION_ID = "x-conversation-id"
SESSION_HEADERS = ("x-session-id", "x-dynamo-session-id")
USER_FIELDS = ("safety_identifier", "user")


@dataclass(frozen=True, slots=True)
class Caller:
    """`session` is "" for a request that names no conversation, `owner` as `owner_of` says."""

    client: str
    session: str
    owner: str

    def session_with(self, content: Content, id_slot: int = -1) -> str:
        """A conversation that goes on with other adapters shares no page with its beginning. What
        names a slot and no conversation goes on where the slot is."""
        if not self.session and id_slot >= 0:
            return session_of_slot(self.owner, id_slot)
        if not self.session or not content.adapters:
            return self.session
        return digest_of("adapted", self.session, content.root().hex())

    def salt(self, own: str) -> str:
        """Returns the salt of the request's cached prefixes; `own` is the one that it asks for."""
        return digest_of("prefix", self.owner, own) if self.owner else own


def caller_of(http: Request, body: object, connection: str, owner: str) -> Caller:
    """A user that the body names counts as one of the users of this connection only.

    Users: `safety_identifier`, `user`, or Anthropic's `metadata.user_id`. Conversations:
    X-Session-Id, X-Dynamo-Session-Id, `prompt_cache_key`, X-Conversation-Id; the first one counts.
    """
    fields = body if isinstance(body, Mapping) else {}
    user = _first(*(fields.get(name) for name in USER_FIELDS), _user_id(fields))
    client = digest_of("user", connection, user) if user else connection
    headers = (http.headers.get(name) for name in SESSION_HEADERS)
    conversation = http.headers.get(CONVERSATION_ID)
    session = _first(*headers, fields.get("prompt_cache_key"), conversation)
    digest = digest_of("session", client, session) if session else ""
    return Caller(client, digest, owner)


def session_of_slot(owner: str, id_slot: int) -> str:
    """The session of requests that name a slot."""
    return digest_of("slot", owner, str(id_slot))


def _user_id(fields: Mapping[str, object]) -> object:
    metadata = fields.get("metadata")
    return metadata.get("user_id") if isinstance(metadata, Mapping) else None


def _first(*values: object) -> str:
    return next((value for value in values if isinstance(value, str) and value), "")
