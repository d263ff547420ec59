"""How long an ingress waits for a replica, which sends heartbeats whatever its engine does."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

# A node that lost its power closes no connection. A replica sends a heartbeat every 5 s, so its
# event loop may hang for 15 s. Serve replaces one that hangs through three health checks, of 10 s
# each.
REPLICA_TIMEOUT_S = 20.0

ReplyT = TypeVar("ReplyT")


class ReplicaSilentError(Exception):
    """A replica sent nothing for REPLICA_TIMEOUT_S: it is lost."""


async def within_timeout(reply: Awaitable[ReplyT]) -> ReplyT:
    """Raises ReplicaSilentError."""
    limit = asyncio.timeout(REPLICA_TIMEOUT_S)
    try:
        async with limit:
            return await reply
    except TimeoutError as error:
        if not limit.expired():  # the call itself raised it
            raise
        raise ReplicaSilentError(f"not a word in {REPLICA_TIMEOUT_S:g} s") from error
