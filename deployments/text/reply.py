"""What a model says, told apart: content, thoughts and calls; the same however its text was cut."""

import json
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


class Calling:
    """Whether a reply, as it comes, calls: an end or a stop string within a call leaves none."""

    def __init__(self, pieces: Iterable[Piece] = ()) -> None:
        self._arguments: list[str] | None = None  # of the last call
        self.add(pieces)

    def add(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            if isinstance(piece, CallStart):
                self._arguments = []
            elif isinstance(piece, CallArguments):
                assert self._arguments is not None, "arguments without a call"
                self._arguments.append(piece.text)

    @property
    def is_whole(self) -> bool:
        return self._arguments is not None and are_whole("".join(self._arguments))


def are_whole(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


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
