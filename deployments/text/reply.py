"""What a model says, told apart: content, thoughts and calls; the same however its text was cut."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call of a tool that the request has; `index` counts the calls of one reply from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next characters of the call's arguments, which are one JSON object in the end."""

    index: int
    text: str


Piece = Content | Thought | CallStart | CallArguments


class ReplyParser(ABC):
    """Pieces joined are a function of the joined text alone. Text that is no call is content."""

    @abstractmethod
    def push(self, text: str) -> list[Piece]: ...

    @abstractmethod
    def finish(self) -> list[Piece]:
        """What was held back, now that no more text comes."""


@dataclass(frozen=True, slots=True)
class Call:
    id: str
    name: str
    arguments: str  # JSON


@dataclass(frozen=True, slots=True)
class Reply:
    content: str
    thought: str
    calls: tuple[Call, ...]


def fold_reply(pieces: Iterable[Piece]) -> Reply:
    content, thought = "", ""
    calls: list[Call] = []
    for piece in pieces:
        match piece:
            case Content(text):
                content += text
            case Thought(text):
                thought += text
            case CallStart(_, call_id, name):
                calls.append(Call(call_id, name, ""))
            case CallArguments(index, text):
                call = calls[index]
                calls[index] = Call(call.id, call.name, call.arguments + text)
    return Reply(content, thought, tuple(calls))
