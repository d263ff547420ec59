"""Pieces fold to one reply."""

from deployments.text.dialects.parsing.pieces import (
    CallArguments,
    CallStart,
    ContentPiece,
    Piece,
    Thought,
)
from deployments.text.reply import Reply, ReplyCall, fold_reply


def test_pieces_of_a_kind_join_and_arguments_go_to_their_call() -> None:
    pieces: list[Piece] = [
        Thought("a"),
        ContentPiece("b"),
        CallStart(0, "x", "f"),
        CallArguments(0, "{"),
        CallStart(1, "y", "g"),
        CallArguments(1, "[]"),
        CallArguments(0, "}"),
        Thought("c"),
        ContentPiece("d"),
    ]
    calls = (ReplyCall("x", "f", "{}"), ReplyCall("y", "g", "[]"))
    assert fold_reply(pieces) == Reply(content="bd", thought="ac", calls=calls)


def test_nothing_folds_to_an_empty_reply() -> None:
    assert fold_reply([]) == Reply(content="", thought="", calls=())
