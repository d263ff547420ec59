"""The tables of the store, as the last migration leaves them. Times are ms since 1970.

A row of `chat` or `message` has a revision that no other row of its owner has. A write takes new
ones while it holds the owner's row, so that they are committed in order: who reads all rows above a
revision misses nothing.
"""

from typing import Any

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
    text,
)

MAX_OWNER = 96  # characters
ID = 36  # characters of a UUID
SHA256 = 64  # hexadecimal digits
KEPT_ID = 64  # characters of an id that this server makes, with its prefix

METADATA = MetaData()


def _present(column: str) -> dict[str, Any]:
    """Has an index have only the rows that have a value there."""
    return {f"{kind}_where": text(f"{column} IS NOT NULL") for kind in ("sqlite", "postgresql")}


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

# What OpenAI's protocol keeps of an owner, counted. Its lock puts the owner's writers in line.
# `last_number`: rises by one with each item, and each use of a response. `response_bytes`: also of
# conversations that are gone and that responses have items of.
KEPT = Table(
    "kept",
    METADATA,
    Column("owner", String(MAX_OWNER), primary_key=True),
    Column("responses", BigInteger, nullable=False),
    Column("response_bytes", BigInteger, nullable=False),
    Column("conversations", BigInteger, nullable=False),
    Column("conversation_bytes", BigInteger, nullable=False),
    Column("last_number", BigInteger, nullable=False),
)

# It continues the response `previous`, or the items of `conversation` up to the number `until`.
# `used`: when it was last used, as a number of its owner. Of one that is gone and continued by
# others, only the items are left: it has no `used` and no `body`.
RESPONSE = Table(
    "response",
    METADATA,
    Column("owner", String(MAX_OWNER), primary_key=True),
    Column("id", String(KEPT_ID), primary_key=True),
    Column("previous", String(KEPT_ID)),
    Column("conversation", String(KEPT_ID)),
    Column("until", BigInteger, nullable=False),
    Column("used", BigInteger),
    Column("body", Text),
    Column("body_bytes", BigInteger, nullable=False),
    Column("item_bytes", BigInteger, nullable=False),
    Index("response_uses", "owner", "used"),
    Index("response_previous", "owner", "previous"),
    Index("response_conversations", "owner", "conversation"),
)

# `metadata`: JSON; one that is gone and that responses have items of has none. Seconds since 1970.
CONVERSATION = Table(
    "conversation",
    METADATA,
    Column("owner", String(MAX_OWNER), primary_key=True),
    Column("id", String(KEPT_ID), primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    Column("metadata", Text),
    Column("bytes", BigInteger, nullable=False),
    Column("items", BigInteger, nullable=False),
)

# Of a response, of a conversation, or of both, in the order of their numbers. The indexes leave out
# those of none, else "of this response and of no conversation" would read all of no conversation.
ITEM = Table(
    "item",
    METADATA,
    Column("owner", String(MAX_OWNER), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("id", Text, nullable=False),
    Column("response", String(KEPT_ID)),
    Column("conversation", String(KEPT_ID)),
    Column("is_output", Boolean, nullable=False),
    Column("is_referable", Boolean, nullable=False),
    Column("body", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Index("item_ids", "owner", "id"),
    Index("item_responses", "owner", "response", "number", **_present("response")),
    Index("item_conversations", "owner", "conversation", "number", **_present("conversation")),
)
