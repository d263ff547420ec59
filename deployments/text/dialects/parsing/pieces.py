"""Pieces of a parsed reply, and the interface of the parsers that make them."""

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ContentPiece:
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """The start of a call of one of the request's tools. `index` counts calls from 0."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next characters of a call's arguments. All of them are one JSON object."""

    index: int
    text: str


Piece = ContentPiece | Thought | CallStart | CallArguments


class ReplyParser(ABC):
    """The joined pieces depend only on the joined text. Text that is not a call is content."""

    @abstractmethod
    def push(self, text: str) -> list[Piece]: ...

    @abstractmethod
    def finish(self, *, is_cut: bool = False) -> list[Piece]:
        """The pieces of the text that was held back, at the end of the reply. Of one that a limit
        has cut, the beginning of a mark is no content.
        """
