"""Pieces of a parsed reply, and the interface of the parsers that make them."""

from abc import ABC, abstractmethod
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
