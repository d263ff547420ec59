"""Hermes, Qwen 2.5 and 3, and many that copied them: a JSON object between two marks.

A prompt describes this form to models that were trained on none.
"""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import (
    bare_json_openings,
    call_rules,
    call_sequence,
    json_call_body,
)
from deployments.text.dialects.dialect import Opening, ReplyContext, WriteMark
from deployments.text.dialects.layouts.marked_blocks import THINK, MarkedBlocks
from deployments.text.dialects.parsing.json_calls import (
    read_json_calls_through,
    read_separated_calls,
)
from deployments.text.tool import Tool

OPEN, CLOSE = "<tool_call>", "</tool_call>"


def marked_text(calls: Sequence[str]) -> str:
    return "\n".join(f"{OPEN}\n{call}\n{CLOSE}" for call in calls)


class Hermes(MarkedBlocks):
    name = "hermes"
    marks: tuple[str, ...] = (OPEN, CLOSE, *THINK)
    thought_marks: tuple[str, str] | None = THINK
    template_signs = (OPEN,)
    openings = ((OPEN, read_json_calls_through(CLOSE)),)
    opening = OPEN

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        one = rf'"\n" call "\n" {mark(CLOSE)}'
        return call_rules(
            call_sequence(one, rf'"\n" {mark(OPEN)}', parallel), tools, json_call_body()
        )

    def as_text(self, calls: Sequence[str]) -> str:
        return marked_text(calls)


class Generic(Hermes):
    """The dialect of models that were trained on none, which the prompt describes.

    The marks are plain text to such a model, and it may leave them out.
    """

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
