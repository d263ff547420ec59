"""The base of a response's output items: an id, a status and the events of their text."""

from abc import ABC, abstractmethod
from typing import ClassVar

from deployments.openai.responses.events import Events, delta_head
from deployments.openai.responses.items import Json, Status, new_id


class OutputItem(ABC):
    """One item, while it is generated and after."""

    prefix: ClassVar[str]
    delta: ClassVar[str]  # the type of the event that adds text

    def __init__(self, index: int, events: Events) -> None:
        self.id = new_id(self.prefix)
        self.status: Status = "in_progress"
        self._index = index
        self._events = events
        self._texts: list[str] = []
        self._delta_head = delta_head(self.delta, self._position())

    @property
    def text(self) -> str:
        return "".join(self._texts)

    @abstractmethod
    def value(self) -> Json: ...

    def begin(self) -> bytes:
        return self._item_event("response.output_item.added")

    def add(self, text: str) -> bytes:
        self._texts.append(text)
        return self._events.delta(self._delta_head, text)

    def end(self, status: Status) -> bytes:
        self.status = status
        return self._item_event("response.output_item.done")

    def _item_event(self, kind: str) -> bytes:
        return self._events.event(kind, {"output_index": self._index, "item": self.value()})

    def _position(self) -> Json:
        return {"item_id": self.id, "output_index": self._index}
