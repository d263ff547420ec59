"""Who sent a request: the owner of what it leaves, and the client it counts for."""

from hashlib import blake2b

from starlette.requests import Request

from deployments.ingress.http.auth import API_KEY_STATE, OWNER_NAME_STATE

DIGEST_BYTES = 16
NAMED = "name:"  # no digest begins so


def owner_of(http: Request) -> str:
    """Returns the owner of the API key that a request came with.

    It is "name:" and the key's name, or else a digest of the key; "" for all where no keys are set.
    What a request leaves behind belongs to it: stored responses and chats, kept streams, cached
    prefixes.
    """
    if name := owner_name(http):
        return NAMED + name
    key = http.scope.get("state", {}).get(API_KEY_STATE)
    return "" if key is None else digest_of("key", key)


def owner_name(http: Request) -> str | None:
    """The name of the API key that a request came with, if it has one."""
    name: str | None = http.scope.get("state", {}).get(OWNER_NAME_STATE)
    return name


def connection_of(http: Request, *, sees_peers: bool) -> str:
    """The client of a connection: the holder of its API key, or else an address.

    A client's own word for where it is from (X-Forwarded-For) is not taken; uvicorn takes that of
    a proxy on this machine. Where `sees_peers` is off, all clients without keys are one.
    """
    if owner := owner_of(http):
        return owner
    if sees_peers and http.client is not None:
        return digest_of("address", http.client.host)
    return digest_of("anybody")


def digest_of(*parts: str) -> str:
    digest = blake2b(digest_size=DIGEST_BYTES)
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(b"%d:%b" % (len(encoded), encoded))
    return digest.hexdigest()
