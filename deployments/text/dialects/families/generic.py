"""The dialect of models that were trained on none: Hermes', which the prompt describes."""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import bare_json_openings
from deployments.text.dialects.dialect import Opening, ReplyContext, WriteMark
from deployments.text.dialects.families.hermes import CLOSE, OPEN, Hermes
from deployments.text.dialects.layouts.marked_blocks import MarkedBlocks
from deployments.text.dialects.parsing.json_calls import read_separated_calls
from deployments.text.tool import Tool


class Generic(Hermes):
    """The marks are plain text to such a model, and it may leave them out."""

    name = "generic"
    bare_openings = (("{", read_separated_calls), ("[", read_separated_calls))

    @classmethod
    def matches_template(cls, template: str) -> bool:
        return True

    def openings_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark
    ) -> tuple[str, tuple[Opening, ...]]:
        lark, openings = super().openings_lark(tools, parallel, mark)
        lines, bare = bare_json_openings(tools, parallel)
        return lark + lines, (*openings, *bare)


class GenericOfFamily(Generic):
    """The generic calls with the thoughts and frames of a family.

    The family has calls of its own, but its template reads no tools.
    """

    def __init__(self, family: MarkedBlocks) -> None:
        self.thought_marks, self.more_thought_marks = (
            family.thought_marks,
            family.more_thought_marks,
        )
        self.answer_frame = family.answer_frame
        self.marks = (OPEN, CLOSE, *family.kept_marks(ReplyContext()))
