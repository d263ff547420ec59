"""The stores of responses: the interface of all, and the one in memory.

The store in memory is bounded in number and in bytes. Its responses go with the process.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from deployments.contract.errors import ErrorKind, Refused
from deployments.store.items import (
    CONVERSATION_PARAM,
    PREVIOUS,
    Choose,
    NewResponse,
    Recalled,
    Reserve,
    StoredItem,
    Wanted,
    no_response,
)

MAX_STORED_RESPONSES = 4096
MAX_STORED_BYTES = 256 << 20
OVERHEAD = 200  # approximate bytes that Python needs for an item or a response beside its JSON


class OwnedResponses(Protocol):
    """The responses of one owner, who sees no others. Raises Refused where it can't be reached."""

    async def recall(self, wanted: Wanted, reserve: Reserve) -> Recalled:
        """Raises Refused for a response or a conversation that is not there."""
        ...

    async def put(self, new: NewResponse) -> bool:
        """Whether it is kept: not if it is too large, or what it continues is gone. The items of
        `new.recalled` are not needed. Raises Refused if its conversation can't have its items.
        """
        ...

    async def body(self, response_id: str) -> bytes | None: ...

    async def delete(self, response_id: str) -> bool:
        """Whether it was there."""
        ...

    async def input_items(self, response_id: str, choose: Choose) -> list[StoredItem] | None: ...


class ResponseStore(Protocol):
    def for_owner(self, owner: str, client: str) -> OwnedResponses:
        """The owner "" is all clients where no keys are set. Clients are served in turn."""
        ...


def no_conversations(param: str | None = None) -> Refused:
    message = "Conversations need a store: this server has `store: none`"
    return Refused.of_kind(ErrorKind.FEATURE_DISABLED, message, param)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """`earlier` are the items of the conversation that it continues, `given` those that the request
    added.
    """

    id: str
    body: bytes  # JSON
    earlier: tuple[StoredItem, ...]
    given: tuple[StoredItem, ...]
    output: tuple[StoredItem, ...]

    @property
    def input(self) -> tuple[StoredItem, ...]:
        return self.earlier + self.given

    @property
    def conversation(self) -> tuple[StoredItem, ...]:
        return self.earlier + self.given + self.output

    @property
    def size(self) -> int:
        """Bytes that it keeps alive, shared items included."""
        items = sum(len(item.body) + OVERHEAD for item in self.conversation)
        return len(self.body) + OVERHEAD + items


class MemoryStore:
    """The responses of all owners. What is too much goes from the owner who has the most."""

    def __init__(
        self, max_responses: int = MAX_STORED_RESPONSES, max_bytes: int = MAX_STORED_BYTES
    ) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._owners: dict[str, RememberedResponses] = {}

    def for_owner(self, owner: str, client: str = "") -> "RememberedResponses":
        if owner not in self._owners:
            self._owners[owner] = RememberedResponses(self._make_room)
        return self._owners[owner]

    def _make_room(self) -> None:
        owners = self._owners.values()
        while sum(owner.n_bytes for owner in owners) > self._max_bytes:
            max(owners, key=lambda owner: owner.n_bytes).drop_oldest()
        while sum(map(len, owners)) > self._max_responses:
            max(owners, key=len).drop_oldest()


class RememberedResponses:
    """The responses of one owner, the least recently used first."""

    def __init__(self, make_room: Callable[[], None]) -> None:
        self._make_room = make_room
        self._responses: OrderedDict[str, StoredResponse] = OrderedDict()
        self._items: dict[str, StoredItem] = {}
        self._n_responses: Counter[str] = Counter()  # that an item is in, by its id
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self._responses)

    async def recall(self, wanted: Wanted, reserve: Reserve) -> Recalled:
        if wanted.conversation is not None:
            raise no_conversations(CONVERSATION_PARAM)
        earlier: tuple[StoredItem, ...] = ()
        if wanted.previous is not None:
            previous = self._get(wanted.previous)
            if previous is None:
                raise no_response(wanted.previous, PREVIOUS)
            earlier = previous.conversation
        known = {item_id: self._items[item_id] for item_id in wanted.ids if item_id in self._items}
        reserve(sum(len(item.body) for item in chain(earlier, known.values())))
        return Recalled(previous=wanted.previous, earlier=earlier, known=known)

    async def put(self, new: NewResponse) -> bool:
        previous = None if new.recalled.previous is None else self._get(new.recalled.previous)
        if new.body is None or (previous is None and new.recalled.previous is not None):
            return False
        response = StoredResponse(
            id=new.id,
            body=new.body,
            earlier=() if previous is None else previous.conversation,
            given=new.given,
            output=new.output,
        )
        self._responses[response.id] = response
        self.n_bytes += response.size
        for item in _referable(response):
            self._items[item.id] = item
            self._n_responses[item.id] += 1
        self._make_room()
        return new.id in self._responses

    async def body(self, response_id: str) -> bytes | None:
        found = self._get(response_id)
        return None if found is None else found.body

    async def input_items(self, response_id: str, choose: Choose) -> list[StoredItem] | None:
        found = self._get(response_id)
        if found is None:
            return None
        items = found.input
        return [items[index] for index in choose([(item.id, len(item.body)) for item in items])]

    async def delete(self, response_id: str) -> bool:
        known = response_id in self._responses
        if known:
            self._drop(response_id)
        return known

    def drop_oldest(self) -> None:
        self._drop(next(iter(self._responses)))

    def _get(self, response_id: str) -> StoredResponse | None:
        if response_id in self._responses:
            self._responses.move_to_end(response_id)
        return self._responses.get(response_id)

    def _drop(self, response_id: str) -> None:
        response = self._responses.pop(response_id)
        self.n_bytes -= response.size
        for item in _referable(response):
            self._n_responses[item.id] -= 1
            if not self._n_responses[item.id]:
                del self._items[item.id], self._n_responses[item.id]


def _referable(response: StoredResponse) -> Iterator[StoredItem]:
    return (item for item in chain(response.given, response.output) if item.is_referable)
