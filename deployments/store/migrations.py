"""The steps by which the tables came to be, in order. A step that was released never changes.

Each runs once, at a start, under a lock: several replicas may start at once.
"""

from collections.abc import Callable, Sequence

from sqlalchemy import Connection, inspect, text

from deployments.store.tables import VERSION

LOCK = 0x6D616E7461  # of Postgres: "manta"
Migration = Callable[[Connection], None]


class NewerSchema(Exception):
    """The tables are of a newer version of Manta."""


def migrate(connection: Connection, migrations: Sequence[Migration] | None = None) -> int:
    """Brings the tables to the last version, in the transaction of the connection. On SQLite this
    has the lock for writing already. Returns the number of steps. Raises NewerSchema.
    """
    steps = MIGRATIONS if migrations is None else migrations
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
    if not inspect(connection).has_table(VERSION.name):
        _run(connection, "CREATE TABLE schema_version (number INTEGER NOT NULL)")
        connection.execute(VERSION.insert().values(number=0))
    found: int = connection.execute(VERSION.select()).scalar_one()
    if found > len(steps):
        raise NewerSchema(f"its tables have version {found}, and this Manta knows {len(steps)}")
    for step in steps[found:]:
        step(connection)
    connection.execute(VERSION.update().values(number=len(steps)))
    return len(steps) - found


def _run(connection: Connection, *statements: str) -> None:
    blob = "BYTEA" if connection.dialect.name == "postgresql" else "BLOB"
    for statement in statements:
        connection.exec_driver_sql(statement.replace("BINARY", blob))


def chats(connection: Connection) -> None:
    _run(
        connection,
        """CREATE TABLE owner (
            id VARCHAR(96) NOT NULL PRIMARY KEY,
            revision BIGINT NOT NULL,
            bytes BIGINT NOT NULL,
            swept BIGINT NOT NULL
        )""",
        """CREATE TABLE chat (
            owner VARCHAR(96) NOT NULL,
            id VARCHAR(36) NOT NULL,
            revision BIGINT NOT NULL,
            title TEXT NOT NULL,
            leaf VARCHAR(36),
            pinned BOOLEAN NOT NULL,
            body TEXT NOT NULL,
            size BIGINT NOT NULL,
            created_at BIGINT NOT NULL,
            updated_at BIGINT NOT NULL,
            deleted_at BIGINT,
            PRIMARY KEY (owner, id)
        )""",
        "CREATE INDEX chat_changes ON chat (owner, revision)",
        "CREATE INDEX chat_tombstones ON chat (deleted_at)",
        """CREATE TABLE message (
            owner VARCHAR(96) NOT NULL,
            chat VARCHAR(36) NOT NULL,
            id VARCHAR(36) NOT NULL,
            parent VARCHAR(36),
            revision BIGINT NOT NULL,
            role VARCHAR(16) NOT NULL,
            body TEXT NOT NULL,
            size BIGINT NOT NULL,
            created_at BIGINT NOT NULL,
            deleted_at BIGINT,
            PRIMARY KEY (owner, chat, id),
            FOREIGN KEY (owner, chat) REFERENCES chat (owner, id) ON DELETE CASCADE
        )""",
        "CREATE INDEX message_changes ON message (owner, revision)",
        "CREATE INDEX message_parents ON message (owner, chat, parent)",
        "CREATE INDEX message_tombstones ON message (deleted_at)",
        """CREATE TABLE attachment (
            owner VARCHAR(96) NOT NULL,
            chat VARCHAR(36) NOT NULL,
            message VARCHAR(36) NOT NULL,
            sha256 VARCHAR(64) NOT NULL,
            PRIMARY KEY (owner, chat, message, sha256),
            FOREIGN KEY (owner, chat, message) REFERENCES message (owner, chat, id)
                ON DELETE CASCADE
        )""",
        "CREATE INDEX attachment_files ON attachment (owner, sha256)",
        """CREATE TABLE file (
            owner VARCHAR(96) NOT NULL,
            sha256 VARCHAR(64) NOT NULL,
            type VARCHAR(128) NOT NULL,
            size BIGINT NOT NULL,
            created_at BIGINT NOT NULL,
            PRIMARY KEY (owner, sha256)
        )""",
        """CREATE TABLE file_part (
            owner VARCHAR(96) NOT NULL,
            sha256 VARCHAR(64) NOT NULL,
            number INTEGER NOT NULL,
            data BINARY NOT NULL,
            PRIMARY KEY (owner, sha256, number),
            FOREIGN KEY (owner, sha256) REFERENCES file (owner, sha256) ON DELETE CASCADE
        )""",
    )


def responses(connection: Connection) -> None:
    _run(
        connection,
        """CREATE TABLE kept (
            owner VARCHAR(96) NOT NULL PRIMARY KEY,
            responses BIGINT NOT NULL,
            response_bytes BIGINT NOT NULL,
            conversations BIGINT NOT NULL,
            conversation_bytes BIGINT NOT NULL,
            last_number BIGINT NOT NULL
        )""",
        """CREATE TABLE response (
            owner VARCHAR(96) NOT NULL,
            id VARCHAR(64) NOT NULL,
            previous VARCHAR(64),
            conversation VARCHAR(64),
            until BIGINT NOT NULL,
            used BIGINT,
            body TEXT,
            body_bytes BIGINT NOT NULL,
            item_bytes BIGINT NOT NULL,
            PRIMARY KEY (owner, id)
        )""",
        "CREATE INDEX response_uses ON response (owner, used)",
        "CREATE INDEX response_previous ON response (owner, previous)",
        "CREATE INDEX response_conversations ON response (owner, conversation)",
        """CREATE TABLE conversation (
            owner VARCHAR(96) NOT NULL,
            id VARCHAR(64) NOT NULL,
            created_at BIGINT NOT NULL,
            metadata TEXT,
            bytes BIGINT NOT NULL,
            items BIGINT NOT NULL,
            PRIMARY KEY (owner, id)
        )""",
        """CREATE TABLE item (
            owner VARCHAR(96) NOT NULL,
            number BIGINT NOT NULL,
            id TEXT NOT NULL,
            response VARCHAR(64),
            conversation VARCHAR(64),
            is_output BOOLEAN NOT NULL,
            is_referable BOOLEAN NOT NULL,
            body TEXT NOT NULL,
            size BIGINT NOT NULL,
            PRIMARY KEY (owner, number)
        )""",
        "CREATE INDEX item_ids ON item (owner, id)",
        """CREATE INDEX item_responses ON item (owner, response, number)
            WHERE response IS NOT NULL""",
        """CREATE INDEX item_conversations ON item (owner, conversation, number)
            WHERE conversation IS NOT NULL""",
    )


MIGRATIONS: tuple[Migration, ...] = (chats, responses)
