"""A SQLite file or a Postgres database: its URL, its connections and its transactions."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from sqlalchemy import Column, Connection, Table, event, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from deployments.contract.errors import Refused
from deployments.store.failures import BUSY, told
from deployments.store.migrations import NewerSchema, migrate

DRIVERS = {
    "sqlite": "sqlite+aiosqlite",
    "sqlite+aiosqlite": "sqlite+aiosqlite",
    "postgres": "postgresql+asyncpg",
    "postgresql": "postgresql+asyncpg",
    "postgresql+asyncpg": "postgresql+asyncpg",
}
BUSY_MS = 10_000  # for another process to end its write to a SQLite file
# FULL: each commit waits for the disk, so that it outlives a loss of power too, and not only the
# process. With NORMAL the last commits could go, and browsers, told that theirs are stored, would
# not send them again; revisions that readers know would be given out anew.
PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    f"busy_timeout={BUSY_MS}",
)
# Two who open a new file both read its first page and want to write it: SQLite refuses one at once.
OPEN_PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8)
NO_STORE = "none"  # in place of a URL
WRITES = "manta_writes"  # execution option: the transaction may write
CONNECTIONS = 8  # of a process
POOL: dict[str, Any] = {"pool_size": 4, "max_overflow": CONNECTIONS - 4, "pool_timeout": 10.0}
READERS = 4  # of an owner at once: they leave connections to others
WRITERS = 3  # of a process at once: where they wait for a lock, readers still have connections
POSTGRES = {"timeout": 10, "command_timeout": 30}  # seconds to connect, and for a statement


class StoreError(ValueError):
    """The store can't be opened. It says where it is, without a password, and why."""


def store_url(text: str) -> URL:
    """Raises StoreError."""
    try:
        url = make_url(text)
        driver = DRIVERS[url.drivername]
    except (ArgumentError, KeyError, ValueError):  # the text may have a password in it
        raise StoreError(
            "store: must be `none`, `sqlite:////PATH`, or `postgresql://USER:PASSWORD@HOST/NAME`"
        ) from None
    # A relative path would be one of the folder that a process happens to run in.
    if driver.startswith("sqlite") and not (url.database or "").startswith("/"):
        raise StoreError("store: a SQLite store must be a file: `sqlite:////PATH`")
    return url.set(drivername=driver)


def default_url() -> str:
    """Returns the URL of a SQLite file in the user's data folder.

    Raises StoreError for an unknown home.
    """
    try:
        data = os.environ.get("XDG_DATA_HOME") or Path("~/.local/share").expanduser()
    except RuntimeError as error:
        raise StoreError(f"store: there is no folder for it: {error}") from error
    return f"sqlite:///{Path(data) / 'manta' / 'store.db'}"


def is_sqlite(url: URL) -> bool:
    return url.drivername.startswith("sqlite")


def open_once(text: str) -> None:
    """Makes the file and the tables where they are not there. It blocks. Raises StoreError."""
    url = store_url(text)
    failures: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(_opened(url))
        except BaseException as error:
            failures.append(error)

    # In a thread of its own: an event loop may run in this one.
    thread = threading.Thread(target=work, name="store")
    thread.start()
    thread.join()
    if failures:
        raise StoreError(f"store: {shown(url)} can't be opened: {_cause(failures[0])}")


def shown(url: URL) -> str:
    """Returns the URL for people: without passwords, which may be in the query, too."""
    if is_sqlite(url):
        return str(url.database)
    return url.set(query={}).render_as_string(hide_password=True)


async def _opened(url: URL) -> None:
    if is_sqlite(url):
        _make_file(Path(str(url.database)))
    for pause_s in OPEN_PAUSES_S:
        try:
            await _migrate(url)
            return
        except Exception as error:
            if "database is locked" not in str(error):
                raise
        await asyncio.sleep(pause_s)
    await _migrate(url)


async def _migrate(url: URL) -> None:
    database = Database(url)
    try:
        async with database.engine.execution_options(**{WRITES: True}).begin() as connection:
            await connection.run_sync(migrate)
    finally:
        await database.close()


def _make_file(path: Path) -> None:
    """Makes the file for its owner alone, as are the files that SQLite puts beside it."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _cause(error: BaseException) -> str:
    inner = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if isinstance(inner, NewerSchema | OSError):
        return str(inner)
    if isinstance(inner, ModuleNotFoundError) and inner.name == "asyncpg":
        return "its driver is missing: install Manta with its extra `postgres`"
    return f"{type(inner).__name__}: {inner}"


class WritersTurn:
    """Writers in line. Who was in it when one gave up has waited as long, and gives up too: else
    they would wait for the same lock, one after the other.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._gave_up_at = float("-inf")

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        came = time.monotonic()
        async with self._lock:
            if came < self._gave_up_at:
                raise Refused(BUSY)
            try:
                yield
            except Refused as refusal:
                if refusal.error is BUSY:
                    self._gave_up_at = time.monotonic()
                raise


class Database:
    """Belongs to one event loop."""

    def __init__(self, url: URL) -> None:
        self.is_sqlite = is_sqlite(url)
        self.engine = _engine(url)
        self._writer = self.engine.execution_options(**{WRITES: True})
        # Of owners that are at work now.
        self._turns = WeakValueDictionary[str, WritersTurn]()
        self._readers = WeakValueDictionary[str, asyncio.Semaphore]()
        self._writers = asyncio.Semaphore(WRITERS)

    @asynccontextmanager
    async def reading(self, owner: str | None = None) -> AsyncIterator[AsyncConnection]:
        """`owner`: who waits for it; None for this server itself. Raises Refused as `told`."""
        async with (
            self._read_slot(owner),
            told() as attempt,
            self.engine.connect() as connection,
        ):
            attempt.is_connected = True
            yield connection

    @asynccontextmanager
    async def writing(self, owner: str = "") -> AsyncIterator[AsyncConnection]:
        """A transaction, committed at the end. Raises Refused as `reading`."""
        # The owner's writers wait for each other here, and not each on a connection. SQLite has
        # one writer. Waiting for it here is fair, and in SQLite it is not.
        turn = self._turns.setdefault("" if self.is_sqlite else owner, WritersTurn())
        async with (
            turn.taken(),
            self._writers,
            told() as attempt,
            self._writer.begin() as connection,
        ):
            attempt.is_connected = True
            yield connection

    def _read_slot(self, owner: str | None) -> AbstractAsyncContextManager[None]:
        """One of those that leave connections to others."""
        if owner is None:
            return nullcontext()
        return self._readers.setdefault(owner, asyncio.Semaphore(READERS))

    async def close(self) -> None:
        await self.engine.dispose()


async def locked_row(
    connection: AsyncConnection, table: Table, key: Column[str], owner: str
) -> dict[str, int]:
    """The owner's row, without its key, locked until the transaction ends. A new one is all 0."""
    counters = [column for column in table.columns if column is not key]
    query = select(*counters).where(key == owner).with_for_update()
    found = (await connection.execute(query)).mappings().one_or_none()
    if found is None:
        make = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
        row = {key.name: owner, **{column.name: 0 for column in counters}}
        await connection.execute(make(table).values(row).on_conflict_do_nothing())
        found = (await connection.execute(query)).mappings().one()
    return dict(found)


def _engine(url: URL) -> AsyncEngine:
    if not is_sqlite(url):
        return create_async_engine(url, pool_pre_ping=True, connect_args=POSTGRES, **POOL)
    engine = create_async_engine(url, **POOL)
    event.listen(engine.sync_engine, "connect", _set_up)
    event.listen(engine.sync_engine, "begin", _begin)
    return engine


def _set_up(connection: Any, record: object) -> None:
    connection.isolation_level = None  # `_begin` begins transactions
    cursor = connection.cursor()
    for pragma in PRAGMAS:
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin(connection: Connection) -> None:
    """Who will write says so at once: a reader may find that it is too late to become a writer."""
    writes = connection.get_execution_options().get(WRITES)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
