"""Bounds the bytes of all bodies, of what they recall and of answers with vectors, and the share of
each client.
"""

from collections.abc import Callable
from functools import cached_property, partial

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.contract.errors import ErrorKind, Refused
from deployments.ingress.http.clients import connection_of
from deployments.ingress.settings import IngressSettings
from deployments.serving.fair_share import FairShare

ACCOUNT_STATE = "body_account"  # where a request's state has its BodyAccount
# Of each body: the limit on requests in flight bounds them, and ordinary requests are never refused
# for the bodies of others.
FREE_BYTES = 64 << 10


class BodyAccount:
    """The bytes of the budget that one request has, until all that work on it have closed it."""

    def __init__(self, shares: FairShare, client: Callable[[], str]) -> None:
        self._shares = shares
        self._find_client = client
        self._body = 0
        self._reserved = 0
        self._acquired = 0
        self._n_open = 1

    @property
    def _is_closed(self) -> bool:
        return self._n_open == 0

    @cached_property
    def _client(self) -> str:
        return self._find_client()

    def grow(self, n_bytes: int) -> None:
        """The body has so many bytes now. Raises Refused."""
        self._body = n_bytes
        self._settle()

    def reserve(self, n_bytes: int) -> None:
        """So many more bytes are read from a store for it, or its answer will have them, at once.
        Raises Refused.
        """
        if self._is_closed:  # a store may still read for a client that has left
            return
        whole = self._body + self._reserved + n_bytes - FREE_BYTES
        if whole > self._shares.most:
            raise _too_large(self._shares.most)
        due = whole - self._acquired
        if due > 0 and not self._shares.has_room(self._client, due):
            raise _overloaded(
                f"There is no room now for {n_bytes} bytes more that this request needs"
            )
        self._reserved += n_bytes
        self._settle()

    def _settle(self) -> None:
        due = self._body + self._reserved - FREE_BYTES - self._acquired
        if due <= 0 or self._is_closed:
            return
        if self._shares.is_full:
            raise _overloaded("The requests of this server hold all the bytes they may")
        if self._shares.is_used_up(self._client):
            n_own = self._shares.acquired_by(self._client)
            raise _overloaded(f"The requests of this client hold {n_own} bytes, and others wait")
        self._shares.acquire(self._client, due)
        self._acquired += due

    def share(self) -> None:
        """Another one works on the request, and closes it too."""
        self._n_open += 1

    def close(self) -> None:
        self._n_open -= 1
        if self._is_closed and self._acquired:
            self._shares.release(self._client, self._acquired)
            self._acquired = 0


class BodyBudget:
    """Gives each request an account, and closes it when the request is answered."""

    def __init__(self, app: ASGIApp, settings: IngressSettings) -> None:
        self._app = app
        self._shares = FairShare(settings.body_budget)
        self._sees_peers = settings.sees_peers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        client = partial(connection_of, Request(scope), sees_peers=self._sees_peers)
        account = scope["state"][ACCOUNT_STATE] = BodyAccount(self._shares, client)
        try:
            await self._app(scope, receive, send)
        finally:
            account.close()


def account_of(request: Request) -> BodyAccount | None:
    return account_in(request.scope)


def account_in(scope: Scope) -> BodyAccount | None:
    account: BodyAccount | None = scope.get("state", {}).get(ACCOUNT_STATE)
    return account


def _too_large(most: int) -> Refused:
    message = (
        f"The request has more than {most:,} bytes with the stored items that it needs and the "
        "vectors of its answer: one request may have 8/9 of `max_inflight_body_bytes`"
    )
    return Refused.of_kind(ErrorKind.BODY_TOO_LARGE, message)


def _overloaded(message: str) -> Refused:
    return Refused.of_kind(ErrorKind.OVERLOADED, f"{message}; try again soon")
