"""A whole reply, folded from its pieces: content, thoughts and calls."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from deployments.text.dialects.parsing.pieces import (
    CallArguments,
    CallStart,
    ContentPiece,
    Piece,
    Thought,
)


class CallTracker:
    """Whether a reply ends in a complete call. A reply that is cut within a call does not."""

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
    def ends_in_call(self) -> bool:
        return self._arguments is not None and is_json_object("".join(self._arguments))


def is_json_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


@dataclass(frozen=True, slots=True)
class ReplyCall:
    id: str
    name: str
    arguments: str  # JSON


@dataclass(frozen=True, slots=True)
class Reply:
    content: str
    thought: str
    calls: tuple[ReplyCall, ...]


def fold_reply(pieces: Iterable[Piece]) -> Reply:
    content: list[str] = []
    thought: list[str] = []
    calls: list[tuple[CallStart, list[str]]] = []
    for piece in pieces:
        match piece:
            case ContentPiece(text):
                content.append(text)
            case Thought(text):
                thought.append(text)
            case CallStart():
                calls.append((piece, []))
            case CallArguments(index, text):
                calls[index][1].append(text)
    made = tuple(ReplyCall(start.id, start.name, "".join(texts)) for start, texts in calls)
    return Reply("".join(content), "".join(thought), made)
