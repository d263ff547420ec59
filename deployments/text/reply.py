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
    content: list[str] = []
    thought: list[str] = []
    calls: list[tuple[CallStart, list[str]]] = []
    for piece in pieces:
        match piece:
            case Content(text):
                content.append(text)
            case Thought(text):
                thought.append(text)
            case CallStart():
                calls.append((piece, []))
            case CallArguments(index, text):
                calls[index][1].append(text)
    made = tuple(Call(start.id, start.name, "".join(texts)) for start, texts in calls)
    return Reply("".join(content), "".join(thought), made)
