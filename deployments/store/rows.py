"""The fields that callers write, and rows as the JSON that readers get."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import RowMapping

from deployments.store.limits import ROW_BYTES

Row = RowMapping
_encode = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), sort_keys=True, allow_nan=False
).encode


def canonical(value: Mapping[str, object]) -> str:
    """JSON, equal for equal values."""
    return _encode(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFields:
    """All that a client says of a chat; `body` is the canonical JSON of what has no field here."""

    title: str
    leaf: str | None
    pinned: bool
    created_at: int
    updated_at: int
    body: str

    @property
    def size(self) -> int:
        return ROW_BYTES + len(self.title.encode()) + len(self.body.encode())

    def row(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "leaf": self.leaf,
            "pinned": self.pinned,
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "body": self.body,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFields:
    """All that a client says of a message; `body` is as in ChatFields.

    files: the digests of its attachments.
    """

    id: str
    parent: str | None
    role: str
    created_at: int
    body: str
    files: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        return ROW_BYTES * (1 + len(self.files)) + len(self.body.encode())

    def row(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "parent": self.parent,
            "role": self.role,
            "created_at": self.created_at,
            "body": self.body,
        }


def chat_json(row: Row) -> str:
    if row["deleted_at"] is not None:
        return _tombstone(row, "id")
    names = ("id", "title", "leaf", "pinned", "created_at", "updated_at", "revision")
    return _joined({name: row[name] for name in names}, row["body"])


def message_json(row: Row) -> str:
    if row["deleted_at"] is not None:
        return _tombstone(row, "id", "chat")
    names = ("id", "chat", "parent", "role", "created_at", "revision")
    return _joined({name: row[name] for name in names}, row["body"])


def _tombstone(row: Row, *names: str) -> str:
    return canonical({name: row[name] for name in (*names, "deleted_at", "revision")})


def _joined(head: Mapping[str, object], body: str) -> str:
    """One object of two, neither of which is empty."""
    return f"{canonical(head)[:-1]},{body[1:]}"
