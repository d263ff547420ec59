"""Stores responses for later requests: the last used, bounded in number and in bytes.

A store belongs to one ingress process. With several ingress replicas a response is found only on
the replica that made it; the default is one replica.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

MAX_STORED_RESPONSES = 4096
MAX_STORED_BYTES = 256 << 20
OVERHEAD = 200  # approximate bytes that Python needs for an item or a response beside its JSON


@dataclass(frozen=True, slots=True)
class StoredItem:
    """`is_referable`: requests may refer to it, because its id is ours. Ids that clients choose may
    be guessed or used twice.
    """

    id: str
    body: bytes  # JSON
    is_referable: bool = True


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


class ResponseStore:
    """Of all owners, each of whom sees its own responses alone; the owner "" is all clients where
    no keys are set. What is too much goes from the owner who has the most. Threads use it, too.
    """

    def __init__(
        self, max_responses: int = MAX_STORED_RESPONSES, max_bytes: int = MAX_STORED_BYTES
    ) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._owners: dict[str, OwnedResponses] = {}

    def of(self, owner: str) -> "OwnedResponses":
        with self._lock:
            if owner not in self._owners:
                self._owners[owner] = OwnedResponses(self._lock, self._make_room)
            return self._owners[owner]

    def _make_room(self) -> None:
        owners = self._owners.values()
        while sum(one.n_bytes for one in owners) > self._max_bytes:
            max(owners, key=lambda one: one.n_bytes).drop_oldest()
        while sum(map(len, owners)) > self._max_responses:
            max(owners, key=len).drop_oldest()


class OwnedResponses:
    """The responses of one owner, the least recently used first."""

    def __init__(self, lock: threading.Lock, make_room: Callable[[], None]) -> None:
        self._lock = lock
        self._make_room = make_room
        self._responses: OrderedDict[str, StoredResponse] = OrderedDict()
        self._items: dict[str, StoredItem] = {}
        self._holders: Counter[str] = Counter()  # responses that have the item as input or output
        self.n_bytes = 0

    def __len__(self) -> int:
        return len(self._responses)

    def put(self, response: StoredResponse) -> None:
        """A response larger than the store is not kept."""
        with self._lock:
            self._responses[response.id] = response
            self.n_bytes += response.size
            for item in _referable(response):
                self._items[item.id] = item
                self._holders[item.id] += 1
            self._make_room()

    def get(self, response_id: str) -> StoredResponse | None:
        with self._lock:
            if response_id in self._responses:
                self._responses.move_to_end(response_id)
            return self._responses.get(response_id)

    def item(self, item_id: str) -> StoredItem | None:
        """An input or output item of a stored response."""
        with self._lock:
            return self._items.get(item_id)

    def delete(self, response_id: str) -> bool:
        with self._lock:
            known = response_id in self._responses
            if known:
                self._drop(response_id)
            return known

    def drop_oldest(self) -> None:
        """For the store alone, which holds the lock."""
        self._drop(next(iter(self._responses)))

    def _drop(self, response_id: str) -> None:
        response = self._responses.pop(response_id)
        self.n_bytes -= response.size
        for item in _referable(response):
            self._holders[item.id] -= 1
            if not self._holders[item.id]:
                del self._items[item.id], self._holders[item.id]


def _referable(response: StoredResponse) -> Iterator[StoredItem]:
    return (item for item in chain(response.given, response.output) if item.is_referable)
