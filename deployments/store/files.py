"""Files, by the digest of their bytes. Those that no message has go."""

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, delete, exists, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.serving.detached_tasks import to_its_end
from deployments.store.database import Database
from deployments.store.limits import ROW_BYTES
from deployments.store.owners import Owners, OwnerWrite
from deployments.store.tables import ATTACHMENT, FILE, FILE_PART

PART_BYTES = 1 << 20
MAX_NAMED = 500  # digests of one statement


@dataclass(frozen=True, slots=True)
class FileInfo:
    type: str
    size: int


class Files:
    def __init__(self, database: Database, owners: Owners) -> None:
        self._database = database
        self._owners = owners

    async def find(self, owner: str, sha256: str) -> FileInfo | None:
        async with self._database.reading(owner) as connection:
            return await _find(connection, owner, sha256)

    async def missing(self, owner: str, digests: Collection[str]) -> list[str]:
        """Returns the digests of the files that are not here."""
        named, found = sorted(digests), set[str]()
        for start in range(0, len(named), MAX_NAMED):
            among = FILE.c.sha256.in_(named[start : start + MAX_NAMED])
            query = select(FILE.c.sha256).where(FILE.c.owner == owner, among)
            async with self._database.reading(owner) as connection:
                found.update((await connection.execute(query)).scalars())
        return [digest for digest in named if digest not in found]

    async def put(self, owner: str, sha256: str, type_: str, data: bytearray, at: int) -> None:
        """`sha256` is of `data`; at: the time, ms, from which one that is there already has a day
        for its message, too.
        """
        async with self._owners.writing(owner) as write:
            if await _find(write.connection, owner, sha256) is not None:
                mine = and_(FILE.c.owner == owner, FILE.c.sha256 == sha256)
                await write.connection.execute(update(FILE).where(mine).values(created_at=at))
                return
            write.grow(ROW_BYTES + len(data))
            key = {"owner": owner, "sha256": sha256}
            row = {**key, "type": type_, "size": len(data), "created_at": at}
            await write.connection.execute(insert(FILE).values(row))
            for number, start in enumerate(range(0, len(data), PART_BYTES)):
                part = bytes(memoryview(data)[start : start + PART_BYTES])
                await write.connection.execute(
                    insert(FILE_PART).values({**key, "number": number, "data": part})
                )

    async def parts(self, owner: str, sha256: str) -> AsyncIterator[bytes]:
        """Its bytes, in parts: between two of them no connection is held."""
        number = 0
        while (part := await to_its_end(self._part(owner, sha256, number))) is not None:
            yield part
            number += 1

    async def _part(self, owner: str, sha256: str, number: int) -> bytes | None:
        query = select(FILE_PART.c.data).where(
            FILE_PART.c.owner == owner,
            FILE_PART.c.sha256 == sha256,
            FILE_PART.c.number == number,
        )
        async with self._database.reading(owner) as connection:
            part: bytes | None = (await connection.execute(query)).scalar_one_or_none()
            return part


def is_used() -> ColumnElement[bool]:
    """Whether a message has the file."""
    return exists().where(ATTACHMENT.c.owner == FILE.c.owner, ATTACHMENT.c.sha256 == FILE.c.sha256)


async def drop_unused(write: OwnerWrite, digests: Collection[str]) -> None:
    """Deletes those of the files that no message has."""
    named = sorted(digests)
    for start in range(0, len(named), MAX_NAMED):
        among = FILE.c.sha256.in_(named[start : start + MAX_NAMED])
        mine = and_(FILE.c.owner == write.owner, among)
        query = select(FILE.c.sha256, FILE.c.size).where(mine, ~is_used())
        unused = (await write.connection.execute(query)).all()
        if unused:
            gone = and_(FILE.c.owner == write.owner, FILE.c.sha256.in_([row[0] for row in unused]))
            await write.connection.execute(delete(FILE).where(gone))
            write.grow(-sum(ROW_BYTES + size for _, size in unused))


async def _find(connection: AsyncConnection, owner: str, sha256: str) -> FileInfo | None:
    query = select(FILE.c.type, FILE.c.size).where(FILE.c.owner == owner, FILE.c.sha256 == sha256)
    found = (await connection.execute(query)).one_or_none()
    return None if found is None else FileInfo(*found)
