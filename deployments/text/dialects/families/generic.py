"""The dialect of models that were trained on none: Hermes', which the prompt describes."""

from deployments.text.dialects.dialect import ReplyContext
from deployments.text.dialects.families.hermes import CLOSE, OPEN, Hermes
from deployments.text.dialects.layouts.marked_blocks import MarkedBlocks
from deployments.text.dialects.parsing.json_calls import read_separated_calls


class Generic(Hermes):
    """The marks are plain text to such a model, and it may leave them out."""

    name = "generic"
    bare_openings = (("{", read_separated_calls), ("[", read_separated_calls))

    @classmethod
    def matches_template(cls, template: str) -> bool:
        return True


class GenericOfFamily(Generic):
    """For a family with calls of its own whose template reads no tools: the generic calls, and the
    family's thoughts and frames.
    """

    def __init__(self, family: MarkedBlocks) -> None:
        self.thought_marks, self.more_thought_marks = (
            family.thought_marks,
            family.more_thought_marks,
        )
        self.answer_frame = family.answer_frame
        self.marks = (OPEN, CLOSE, *family.kept_marks(ReplyContext()))
