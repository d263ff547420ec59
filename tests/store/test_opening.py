"""A store opens where it may, with tables as this version has them, and else says why not."""

import asyncio
import re
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, inspect, text

from deployments.store import migrations
from deployments.store.database import Database, StoreError, default_url, open_once, store_url
from deployments.store.tables import METADATA
from tests.databases import opened


def on(url: str, work: Callable[[Connection], Any]) -> Any:
    async def main() -> Any:
        async with opened(url) as store, store.database.writing() as connection:
            return await connection.run_sync(work)

    return asyncio.run(main())


def condition(where: object) -> str:
    """Returns a partial index's condition without the brackets that Postgres puts around it."""
    return "" if where is None else str(where).strip("()")


def test_the_migrations_end_at_the_tables_that_the_code_uses(url: str) -> None:
    def tables(connection: Connection) -> None:
        found = inspect(connection)
        assert set(METADATA.tables) <= set(found.get_table_names())
        for name, table in METADATA.tables.items():
            columns = {column["name"]: column["nullable"] for column in found.get_columns(name)}
            assert columns == {column.name: column.nullable for column in table.columns}
            key = found.get_pk_constraint(name)["constrained_columns"]
            assert key == [column.name for column in table.primary_key]
            where = f"{connection.dialect.name}_where"
            indexes = {
                index["name"]: (
                    index["column_names"],
                    condition(index["dialect_options"].get(where)),
                )
                for index in found.get_indexes(name)
            }
            assert indexes == {
                index.name: (
                    [c.name for c in index.columns],
                    condition(index.dialect_kwargs.get(where)),
                )
                for index in table.indexes
            }
            links = [link["constrained_columns"] for link in found.get_foreign_keys(name)]
            assert links == [link.column_keys for link in table.foreign_key_constraints]

    on(url, tables)


def test_each_step_runs_once_and_in_order(url: str) -> None:
    ran: list[str] = []
    steps = [*migrations.MIGRATIONS, lambda _: ran.append("one"), lambda _: ran.append("two")]

    def work(connection: Connection) -> None:
        assert migrations.migrate(connection, steps) == 2
        assert migrations.migrate(connection, steps) == 0
        real = {"n": len(migrations.MIGRATIONS)}
        connection.execute(text("UPDATE schema_version SET number = :n"), real)

    on(url, work)
    assert ran == ["one", "two"]


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    open_once(url)
    on(url, lambda one: one.execute(text("UPDATE schema_version SET number = 99")))
    with pytest.raises(StoreError, match="version 99, and this Manta knows"):
        open_once(url)


def test_many_may_open_a_new_store_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a/b/store.db"
    threads = [threading.Thread(target=open_once, args=(url,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert on(url, migrations.migrate) == 0


def test_a_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    open_once(f"sqlite:///{tmp_path}/a/store.db")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "a").iterdir()]
    assert set(modes) == {0o600}
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    "url",
    [
        "mysql://root:secret@host/db",
        "secret",
        "sqlite://",
        "sqlite:///:memory:",
        "postgresql://u:secret@h:x/d",
        "postgresql://u@h:x/d?password=secret",
    ],
)
def test_a_wrong_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(StoreError, match=r"^store: .*`sqlite:////PATH`") as failure:
        store_url(url)
    assert "secret" not in str(failure.value)


def test_a_store_that_can_not_be_opened_says_where_and_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no database at all, but text" * 100)
    for path, reason in (("file", "file is not a database"), ("file/x.db", "exists|directory")):
        where = re.escape(str(tmp_path / path))
        with pytest.raises(StoreError, match=f"^store: {where} can't be opened: .*({reason})"):
            open_once(f"sqlite:///{tmp_path / path}")
    for url in ("u:secret@127.0.0.1:1/d", "u:x@127.0.0.1:1/d?password=secret"):
        with pytest.raises(StoreError, match=r"u:\*\*\*@127.0.0.1:1/d can't be opened") as failure:
            open_once(f"postgresql://{url}")
        assert "secret" not in str(failure.value)


def test_the_store_is_in_the_data_folder_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert default_url() == "sqlite:////data/manta/store.db"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", "/home/anna")
    assert default_url() == "sqlite:////home/anna/.local/share/manta/store.db"


def test_a_commit_waits_for_the_disk(tmp_path: Path) -> None:
    async def pragmas() -> list[object]:
        database = Database(store_url(f"sqlite:///{tmp_path}/a.db"))
        async with database.reading() as one:
            names = ("journal_mode", "synchronous", "foreign_keys")
            found = [(await one.exec_driver_sql(f"PRAGMA {n}")).scalar_one() for n in names]
        await database.close()
        return found

    assert asyncio.run(pragmas()) == ["wal", 2, 1]
