"""The tables of the store, as the last migration leaves them. Times are ms since 1970.

A row of `chat` or `message` has a revision that no other row of its owner has. A write takes new
ones while it holds the owner's row, so that they are committed in order: who reads all rows above a
revision misses nothing.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

MAX_OWNER = 96  # characters
ID = 36  # characters of a UUID
SHA256 = 64  # hexadecimal digits

METADATA = MetaData()

VERSION = Table("schema_version", METADATA, Column("number", Integer, nullable=False))

# `swept`: the highest revision of a tombstone that is no longer there.
OWNER = Table(
    "owner",
    METADATA,
    Column("id", String(MAX_OWNER), primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    Column("swept", BigInteger, nullable=False),
)

# `body`: JSON of all other fields. `size`: bytes that count for the owner.
CHAT = Table(
    "chat",
    METADATA,
    Column("owner", String(MAX_OWNER), primary_key=True),
    Column("id", String(ID), primary_key=True),
    Column("revision", BigInteger, nullable=False),
    Column("title", Text, nullable=False),
    Column("leaf", String(ID)),
    Column("pinned", Boolean, nullable=False),
    Column("body", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("deleted_at", BigInteger),
    Index("chat_changes", "owner", "revision"),
    Index("chat_tombstones", "deleted_at"),
)

MESSAGE = Table(
    "message",
    METADATA,
    Column("owner", String(MAX_OWNER), primary_key=True),
    Column("chat", String(ID), primary_key=True),
    Column("id", String(ID), primary_key=True),
    Column("parent", String(ID)),
    Column("revision", BigInteger, nullable=False),
    Column("role", String(16), nullable=False),
    Column("body", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("deleted_at", BigInteger),
    ForeignKeyConstraint(["owner", "chat"], ["chat.owner", "chat.id"], ondelete="CASCADE"),
    Index("message_changes", "owner", "revision"),
    Index("message_parents", "owner", "chat", "parent"),
    Index("message_tombstones", "deleted_at"),
)

# The files that a message has. A file that no message has goes.
ATTACHMENT = Table(
    "attachment",
    METADATA,
    Column("owner", String(MAX_OWNER), primary_key=True),
    Column("chat", String(ID), primary_key=True),
    Column("message", String(ID), primary_key=True),
    Column("sha256", String(SHA256), primary_key=True),
    ForeignKeyConstraint(
        ["owner", "chat", "message"],
        ["message.owner", "message.chat", "message.id"],
        ondelete="CASCADE",
    ),
    Index("attachment_files", "owner", "sha256"),
)

FILE = Table(
    "file",
    METADATA,
    Column("owner", String(MAX_OWNER), primary_key=True),
    Column("sha256", String(SHA256), primary_key=True),
    Column("type", String(128), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

# A file is read and written in parts, so that nobody has to hold it whole.
FILE_PART = Table(
    "file_part",
    METADATA,
    Column("owner", String(MAX_OWNER), primary_key=True),
    Column("sha256", String(SHA256), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    ForeignKeyConstraint(["owner", "sha256"], ["file.owner", "file.sha256"], ondelete="CASCADE"),
)
