"""The dialect of models that were taught none: it is told to them, and is that of Hermes."""

from deployments.text.dialects.dialect import ReplyContext
from deployments.text.dialects.families.hermes import CLOSE, OPEN, Hermes
from deployments.text.dialects.layouts.marked_blocks import MarkedBlocks
from deployments.text.dialects.parsing.json_calls import read_separated_calls


class Generic(Hermes):
    """Its marks are plain text to such a model, which may well forget them around the JSON."""

    name = "generic"
    bare_openings = (("{", read_separated_calls), ("[", read_separated_calls))

    @classmethod
    def matches_template(cls, template: str) -> bool:
        return True


class Instructed(Generic):
    """Of a family that has calls of its own, but a template that knows no tools: all but those."""

    def __init__(self, family: MarkedBlocks) -> None:
        self.thought_marks, self.more_thought_marks = (
            family.thought_marks,
            family.more_thought_marks,
        )
        self.answer_frame = family.answer_frame
        self.marks = (OPEN, CLOSE, *family.kept_marks(ReplyContext()))
