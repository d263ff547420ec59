"""The dialect of models that were taught none."""

from collections.abc import Sequence

from deployments.text.dialects.dialect import Dialect, Listening, Mark, Tool
from deployments.text.reply import Content, Piece, ReplyParser


class Generic(Dialect):
    name = "generic"

    @classmethod
    def is_spoken_by(cls, template: str) -> bool:
        return True

    def parser(self, listening: Listening) -> ReplyParser:
        return PlainParser()

    def calls(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        raise NotImplementedError


class PlainParser(ReplyParser):
    def push(self, text: str) -> list[Piece]:
        return [Content(text)] if text else []

    def finish(self) -> list[Piece]:
        return []
