"""The store of a process of `web`: opened at its start, or else as soon as it can be."""

import asyncio
import logging

from deployments.contract.errors import ErrorKind, Refused
from deployments.serving.detached_tasks import create_detached_task
from deployments.store.database import (
    StoreError,
    default_url,
    is_sqlite,
    open_once,
    shown,
    store_url,
)
from deployments.store.limits import StoreLimits
from deployments.store.store import Store

logger = logging.getLogger(__name__)

RETRY_S = 10.0


class StoreOpener:
    """Made before an event loop runs the application; `begin` is for that loop."""

    def __init__(self, url: str | None, limits: StoreLimits, retry_s: float = RETRY_S) -> None:
        """`url`: None for a file in the user's data folder. It blocks until the store is open, or
        can't be opened.
        """
        self._given = url
        self._limits = limits
        self._retry_s = retry_s
        self._found: str | None = None
        self._failure = ""
        self._store: Store | None = None
        self._retrying: asyncio.Task[None] | None = None
        self._open()

    def begin(self) -> None:
        if self._found is None:
            self._retrying = create_detached_task(self._retry())
        else:
            self._use(self._found)

    @property
    def is_open(self) -> bool:
        return self._store is not None

    @property
    def store(self) -> Store:
        """Raises Refused where it is not open."""
        if self._store is None:
            message = "The store of this server can't be opened; its log says why"
            raise Refused.of_kind(ErrorKind.UNAVAILABLE, message)
        return self._store

    async def close(self) -> None:
        if self._retrying is not None:
            self._retrying.cancel()
            await asyncio.gather(self._retrying, return_exceptions=True)
        if self._store is not None:
            await self._store.close()

    async def _retry(self) -> None:
        while self._found is None:
            await asyncio.sleep(self._retry_s)
            await asyncio.to_thread(self._open)
        self._use(self._found)

    def _use(self, url: str) -> None:
        self._store = Store(store_url(url), self._limits)
        self._store.begin_sweeping()

    def _open(self) -> None:
        """A failure is logged once for each reason."""
        try:
            url = default_url() if self._given is None else self._given
            open_once(url)
        except StoreError as error:
            if str(error) != self._failure:
                logger.error(
                    "Chats are kept in browsers only. %s. This is tried again every %g seconds",
                    error,
                    self._retry_s,
                )
            self._failure = str(error)
        else:
            self._found = url
            logger.info("Chats are stored in %s", _described(url))


def _described(text: str) -> str:
    url = store_url(text)
    if is_sqlite(url):
        return f"{shown(url)}, a file of this node: `web` must have one replica"
    return shown(url)
