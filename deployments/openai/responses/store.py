"""Responses that a later request may name: the last used, bounded in number and in bytes.

A store belongs to one ingress process. Behind several replicas of the ingress a client finds its
response only where it was made; a deployment of one, which is the default, has no such gap.
"""

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

MAX_STORED_RESPONSES = 4096
MAX_STORED_BYTES = 256 << 20
OVERHEAD = 200  # bytes that Python needs for an item or a response beside its JSON, about


@dataclass(frozen=True, slots=True)
class StoredItem:
    """One whose id the client made up can't be referred to: others may know it, or have it too."""

    id: str
    body: bytes  # JSON
    ours: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredResponse:
    """`earlier` are the items of the conversation that it went on with, `given` those that the
    request added to them.
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
        """Bytes it keeps alive, those that it shares with others counted as its own."""
        items = sum(len(item.body) + OVERHEAD for item in self.conversation)
        return len(self.body) + OVERHEAD + items


class ResponseStore:
    """Requests read it from threads too."""

    def __init__(
        self, most: int = MAX_STORED_RESPONSES, most_bytes: int = MAX_STORED_BYTES
    ) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._responses: OrderedDict[str, StoredResponse] = OrderedDict()
        self._items: dict[str, StoredItem] = {}
        self._holders: Counter[str] = Counter()  # responses that an item was given to or made by
        self._bytes = 0

    def put(self, response: StoredResponse) -> None:
        """One that is larger than the store is not kept."""
        with self._lock:
            self._responses[response.id] = response
            self._bytes += response.size
            for item in _referable(response):
                self._items[item.id] = item
                self._holders[item.id] += 1
            while self._bytes > self._most_bytes or len(self._responses) > self._most:
                self._drop(next(iter(self._responses)))

    def get(self, response_id: str) -> StoredResponse | None:
        with self._lock:
            if response_id in self._responses:
                self._responses.move_to_end(response_id)
            return self._responses.get(response_id)

    def item(self, item_id: str) -> StoredItem | None:
        """An item of a stored response, given or made."""
        with self._lock:
            return self._items.get(item_id)

    def delete(self, response_id: str) -> bool:
        with self._lock:
            known = response_id in self._responses
            if known:
                self._drop(response_id)
            return known

    def _drop(self, response_id: str) -> None:
        response = self._responses.pop(response_id)
        self._bytes -= response.size
        for item in _referable(response):
            self._holders[item.id] -= 1
            if not self._holders[item.id]:
                del self._items[item.id], self._holders[item.id]


def _referable(response: StoredResponse) -> Iterator[StoredItem]:
    return (item for item in chain(response.given, response.output) if item.ours)
