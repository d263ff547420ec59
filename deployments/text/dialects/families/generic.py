"""The dialect of models that were taught none: it is told to them, and is that of Hermes."""

from deployments.text.dialects.dialect import Listening
from deployments.text.dialects.families.hermes import CLOSE, OPEN, Hermes
from deployments.text.dialects.layouts.marked_blocks import Family
from deployments.text.dialects.parsing.json_calls import separated_calls


class Generic(Hermes):
    """Its marks are plain text to such a model, which may well forget them around the JSON."""

    name = "generic"
    bare = (("{", separated_calls), ("[", separated_calls))

    @classmethod
    def is_spoken_by(cls, template: str) -> bool:
        return True


class Instructed(Generic):
    """Of a family that has calls of its own, but a template that knows no tools: all but those."""

    def __init__(self, family: Family) -> None:
        self.thought_marks, self.thoughts = family.thought_marks, family.thoughts
        self.frame = family.frame
        self.marks = (OPEN, CLOSE, *family.kept_marks(Listening()))
