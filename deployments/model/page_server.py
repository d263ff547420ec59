"""Pages that replicas of a model send each other through Ray's object store.

A call holds no page: what is taken for new content while it is copied is left out. So there is no
lease, and nothing leaks when either end dies. Both ends copy on a thread of their own, beside the
engine's step.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from ray import serve
from ray.serve.handle import DeploymentHandle

from deployments.model.router_link import call_result
from deployments.model.settings import MODEL_DEPLOYMENT
from kv.arrivals import PageKey
from kv.tiers.parcel import NOTHING, PageReader, Parcel

log = logging.getLogger("ray.serve")

AT_ONCE = 4  # calls under way, of all that a replica pulls


class PageServer:
    """Answers other replicas. `pages` returns those of the engine, if it has one and sends any."""

    def __init__(self, replica_id: str, pages: Callable[[], PageReader | None]) -> None:
        self._replica_id, self._pages = replica_id, pages
        self._thread = ThreadPoolExecutor(1, "kv pages out")

    async def read(
        self, replica_id: str | None, namespace: bytes, keys: Sequence[PageKey]
    ) -> Parcel:
        """A parcel of the leading pages that are here; of none, where another replica was asked."""
        pages = self._pages()
        if pages is None or replica_id != self._replica_id:
            return NOTHING
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, pages.read, namespace, keys)


class PagePuller:
    """Implements `deployments.engine.needs.remote_pages.PullPages` for the replicas of one
    application. Belongs to the event loop on which it is made."""

    def __init__(self, application: str) -> None:
        self._application = application
        self._loop = asyncio.get_running_loop()
        self._calls = asyncio.Semaphore(AT_ONCE)
        self._thread = ThreadPoolExecutor(1, "kv pages in")
        self._finding: asyncio.Task[DeploymentHandle] | None = None

    def __call__(
        self,
        replica_id: str,
        namespace: bytes,
        pieces: Sequence[Sequence[PageKey]],
        take: Callable[[int, Parcel], bool],
        done: Callable[[], object],
    ) -> None:
        pulling = self._pull(replica_id, namespace, pieces, take, done)
        try:
            asyncio.run_coroutine_threadsafe(pulling, self._loop)
        except RuntimeError:  # the loop has ended
            pulling.close()
            done()

    async def connect(self) -> None:
        """Finds the other replicas before they are needed, which takes Serve its time."""
        with suppress(Exception):
            await self._ask("", b"", ())

    async def _pull(
        self,
        replica_id: str,
        namespace: bytes,
        pieces: Sequence[Sequence[PageKey]],
        take: Callable[[int, Parcel], bool],
        done: Callable[[], object],
    ) -> None:
        left = iter([*enumerate(pieces)])

        async def work() -> None:
            for number, keys in left:
                async with self._calls:
                    parcel = await self._ask(replica_id, namespace, keys)
                    goes_on = await self._loop.run_in_executor(self._thread, take, number, parcel)
                if not goes_on:
                    _drop(left)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(AT_ONCE, len(pieces))):
                    group.create_task(work())
        except Exception as error:
            log.warning("pages of the replica %s are computed: %r", replica_id, error)
        finally:
            done()

    async def _ask(self, replica_id: str, namespace: bytes, keys: Sequence[PageKey]) -> Parcel:
        """Raises whatever Ray does, and TimeoutError after 2 s."""
        handle = await self._handle()
        # Serve's gRPC transport refuses 4 MiB, and copies.
        read = handle.options(method_name="read_pages", _by_reference=True)
        parcel: Parcel = await call_result(read.remote(replica_id, namespace, (*keys,)))  # type: ignore[assignment]
        return parcel

    async def _handle(self) -> DeploymentHandle:
        if self._finding is None:
            find = asyncio.to_thread(
                serve.get_deployment_handle, MODEL_DEPLOYMENT, self._application
            )
            self._finding = self._loop.create_task(find)
        try:
            return await asyncio.shield(self._finding)
        except Exception:
            self._finding = None
            raise


def _drop(left: Iterator[object]) -> None:
    """Nothing more of it is asked for."""
    for _ in left:
        pass
