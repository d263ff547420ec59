"""Items that OpenAI's protocol keeps, the responses that have them, and what a request recalls."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from deployments.contract.errors import ErrorKind, Refused

PREVIOUS = "previous_response_id"
CONVERSATION_PARAM = "conversation"
# Which of the items with these ids and sizes in bytes, in order, are wanted: their indexes, in any
# order.
Choose = Callable[[Sequence[tuple[str, int]]], Sequence[int]]
# Is told of bytes before they are read. Raises Refused for too many.
Reserve = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class StoredItem:
    """`is_referable`: requests may refer to it, because its id is ours. Ids that clients choose may
    be guessed or used twice.
    """

    id: str
    body: bytes  # JSON
    is_referable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The ids in a request: of the response or conversation that it continues, and of items."""

    previous: str | None = None
    conversation: str | None = None
    ids: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """The stored data that a request names.

    earlier: the items that it continues.
    known: items that may be referred to, by their ids.
    until: the number of the conversation's last item.
    """

    previous: str | None = None
    conversation: str | None = None
    until: int = 0
    earlier: tuple[StoredItem, ...] = ()
    known: Mapping[str, StoredItem] = field(default_factory=dict)

    def without_items(self) -> "Recalled":
        return replace(self, earlier=(), known={})


@dataclass(frozen=True, slots=True, kw_only=True)
class NewResponse:
    """body: JSON; None for one of which only its conversation keeps the items.
    given: items of the request.
    """

    id: str
    body: bytes | None
    recalled: Recalled
    given: tuple[StoredItem, ...]
    output: tuple[StoredItem, ...]


def no_response(response_id: str, param: str) -> Refused:
    """A path that names none is a 404, a request that continues none has a kind of its own."""
    message = f"`{param}`: there is no stored response {response_id!r}"
    kind = ErrorKind.NO_PREVIOUS_RESPONSE if param == PREVIOUS else ErrorKind.NOT_FOUND
    return Refused.of_kind(kind, message, param)


def no_conversation(conversation_id: str, param: str) -> Refused:
    message = f"`{param}`: there is no conversation {conversation_id!r}"
    return Refused.of_kind(ErrorKind.NOT_FOUND, message, param)
