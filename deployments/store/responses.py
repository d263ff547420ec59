"""Stored responses: bounded, and the least recently used of an owner go first."""

from collections.abc import Iterator, Sequence

from sqlalchemy import CTE, ColumnElement, and_, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deployments.store.conversations import (
    ConversationParams,
    admit_items,
    find_conversation,
    in_conversation,
)
from deployments.store.database import Database
from deployments.store.item_rows import (
    Listed,
    chosen_items,
    item_of,
    known_items,
    listed_items,
    reserved_items,
    text_of,
)
from deployments.store.items import (
    CONVERSATION_PARAM,
    PREVIOUS,
    Choose,
    NewResponse,
    Recalled,
    Reserve,
    StoredItem,
    Wanted,
    no_conversation,
    no_response,
)
from deployments.store.kept import KeptOwners, KeptWrite, size_of
from deployments.store.limits import ROW_BYTES, KeptLimits
from deployments.store.rows import Row
from deployments.store.tables import ITEM, RESPONSE

PARAMS = ConversationParams(CONVERSATION_PARAM, "input")


class Responses:
    def __init__(self, database: Database, owners: KeptOwners, limits: KeptLimits) -> None:
        self._database = database
        self._owners = owners
        self._limits = limits

    async def put(self, owner: str, new: NewResponse) -> bool:
        """Whether it is kept: not if it is larger than all that may be, or what it continues is
        gone. Raises Refused if its conversation can't have its items.
        """
        async with self._owners.writing(owner) as write:
            recalled, items = new.recalled, (*new.given, *new.output)
            is_kept = self._fits(new, items) and await self._use(write, recalled.previous)
            if recalled.conversation is not None:
                await admit_items(write, recalled.conversation, items, self._limits, PARAMS)
            elif not is_kept:
                return False
            response = new.id if is_kept else None
            await write.add_items(
                new.given, new.output, response=response, conversation=recalled.conversation
            )
            return is_kept and await self._add(write, new, size_of(items))

    def _fits(self, new: NewResponse, items: Sequence[StoredItem]) -> bool:
        """Whether it is to be kept at all, and does not need more than all that there is."""
        if new.body is None:
            return False
        return ROW_BYTES + len(new.body) + size_of(items) <= self._limits.max_response_bytes

    async def _use(self, write: KeptWrite, previous: str | None) -> bool:
        """Whether it is there."""
        if previous is None:
            return True
        this = and_(RESPONSE.c.owner == write.owner, RESPONSE.c.id == previous)
        used = update(RESPONSE).where(this, RESPONSE.c.used.is_not(None))
        done = await write.connection.execute(used.values(used=write.next_number()))
        return done.rowcount > 0

    async def _add(self, write: KeptWrite, new: NewResponse, item_bytes: int) -> bool:
        body = new.body or b""
        row = {
            "owner": write.owner,
            "id": new.id,
            "previous": new.recalled.previous,
            "conversation": new.recalled.conversation,
            "until": new.recalled.until,
            "used": write.next_number(),
            "body": body.decode(),
            "body_bytes": len(body),
            "item_bytes": item_bytes,
        }
        await write.connection.execute(insert(RESPONSE).values(row))
        write.now.responses += 1
        write.now.response_bytes += ROW_BYTES + len(body) + item_bytes
        return new.id not in await write.make_room(self._limits)

    async def body(self, owner: str, response_id: str) -> bytes | None:
        async with self._database.reading(owner) as connection:
            query = select(RESPONSE.c.body).where(_is_response(owner, response_id))
            found: str | None = (await connection.execute(query)).scalar_one_or_none()
            return None if found is None else found.encode()

    async def delete(self, owner: str, response_id: str) -> bool:
        """Whether it was there."""
        async with self._owners.writing(owner) as write:
            query = select(RESPONSE.c.id).where(_is_response(owner, response_id))
            if (await write.connection.execute(query)).one_or_none() is None:
                return False
            await write.drop_response(response_id)
            return True

    async def recall(self, owner: str, wanted: Wanted, reserve: Reserve) -> Recalled:
        """Raises Refused for a response or a conversation that is not there."""
        async with self._database.reading(owner) as connection:
            earlier: list[StoredItem] = []
            until = 0
            if wanted.conversation is not None:
                found = await find_conversation(connection, owner, wanted.conversation)
                if found is None:
                    raise no_conversation(wanted.conversation, CONVERSATION_PARAM)
                mine = in_conversation(owner, wanted.conversation)
                rows = await reserved_items(connection, mine, reserve)
                earlier = [item_of(row) for row in rows]
                until = rows[-1]["number"] if rows else 0
            elif wanted.previous is not None:
                chain = _chain(owner, wanted.previous)
                links = await _links(connection, chain)
                if not links:
                    raise no_response(wanted.previous, PREVIOUS)
                for where in _where(owner, chain, links):
                    rows = await reserved_items(connection, where, reserve)
                    earlier += [item_of(row) for row in rows]
            return Recalled(
                previous=wanted.previous,
                conversation=wanted.conversation,
                until=until,
                earlier=tuple(earlier),
                known=await known_items(connection, owner, wanted.ids, reserve),
            )

    async def input_items(
        self, owner: str, response_id: str, choose: Choose
    ) -> list[StoredItem] | None:
        """Returns the chosen items, of those that it continues and those that it was given."""
        async with self._database.reading(owner) as connection:
            chain = _chain(owner, response_id)
            links = await _links(connection, chain)
            if not links:
                return None
            is_other = ITEM.c.response.is_distinct_from(response_id)
            is_input = or_(is_other, ~ITEM.c.is_output)
            found: list[Listed] = []
            for where in _where(owner, chain, links):
                found += await listed_items(connection, and_(where, is_input))
            return await chosen_items(connection, owner, found, choose)


def _chain(owner: str, response_id: str) -> CTE:
    """The response and all before it."""
    columns = (RESPONSE.c.id, RESPONSE.c.previous, RESPONSE.c.conversation, RESPONSE.c.until)
    first = select(*columns).where(_is_response(owner, response_id)).cte("chain", recursive=True)
    before = select(*columns).where(RESPONSE.c.owner == owner, RESPONSE.c.id == first.c.previous)
    return first.union_all(before)


async def _links(connection: AsyncConnection, chain: CTE) -> Sequence[Row]:
    """The first of a chain, which may have a conversation; none if there is no such response."""
    query = select(chain.c.conversation, chain.c.until).where(chain.c.previous.is_(None))
    return (await connection.execute(query)).mappings().all()


def _where(owner: str, chain: CTE, links: Sequence[Row]) -> Iterator[ColumnElement[bool]]:
    """Yields the conditions for the items of a chain, in their order."""
    for link in links:
        if link["conversation"] is not None:
            mine = in_conversation(owner, link["conversation"])
            yield and_(mine, ITEM.c.number <= link["until"])
    yield and_(ITEM.c.owner == owner, ITEM.c.response.in_(select(chain.c.id)))


def _is_response(owner: str, response_id: str) -> ColumnElement[bool]:
    """One that can be found."""
    this = and_(RESPONSE.c.owner == owner, RESPONSE.c.id == text_of(response_id))
    return and_(this, RESPONSE.c.used.is_not(None))
