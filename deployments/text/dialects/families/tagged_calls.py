"""Families whose calls are a name and parameters in tags, between marks."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from deployments.text.dialects.call_grammar import call_sequence
from deployments.text.dialects.dialect import Opening, WriteMark
from deployments.text.dialects.families.hermes import CLOSE, OPEN
from deployments.text.dialects.layouts.marked_blocks import THINK, MarkedBlocks
from deployments.text.dialects.layouts.tagged_parameters import (
    CallTags,
    read_tagged_calls,
    tagged_calls_lark,
)
from deployments.text.tool import Tool


class TaggedCalls(MarkedBlocks):
    """The layout of all of them. `closing` is the mark behind the calls."""

    closing: ClassVar[str]
    tags: ClassVar[CallTags]

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        return tagged_calls_lark(self.opening, self.tags, self.closing, tools, parallel, mark)


class Glm(TaggedCalls):
    """GLM 4.5 and later: a name, and keys and values between marks."""

    name = "glm"
    opening, closing = OPEN, CLOSE
    tags = CallTags(
        start=OPEN,
        name_end="",
        key=("<arg_key>", "</arg_key>"),
        value=("<arg_value>", "</arg_value>"),
        end=CLOSE,
        newline=r'("\n")?',  # GLM 4.5 has one, GLM 4.7 none
    )
    marks = (OPEN, CLOSE, *tags.key, *tags.value, *THINK)
    thought_marks = THINK
    template_signs = ("<arg_key>",)
    openings = ((OPEN, read_tagged_calls(OPEN, tags, CLOSE)),)


class Hunyuan3(TaggedCalls):
    """Hunyuan since Hy3: GLM's parameters in a block of calls."""

    name = "hunyuan_v3"
    opening, closing, separator = "<tool_calls>", "</tool_calls>", "<tool_sep>"
    tags = replace(Glm.tags, name_end=separator)
    thought_marks = THINK
    marks = (opening, closing, tags.start, tags.end, separator, *tags.key, *tags.value, *THINK)
    template_signs = (separator,)
    openings = ((opening, read_tagged_calls(opening, tags, closing)),)


class Seed(TaggedCalls):
    """Seed OSS: as Qwen 3 Coder, but with its own marks."""

    name = "seed"
    opening, closing = "<seed:tool_call>", "</seed:tool_call>"
    tags = CallTags(
        start="<function=",
        name_end=">",
        key=("<parameter=", ">"),
        value=("", "</parameter>"),
        end="</function>",
    )
    thought_marks = ("<seed:think>", "</seed:think>")
    marks = (opening, closing, *thought_marks)
    template_signs = (opening, "<seed:think>")
    openings = ((opening, read_tagged_calls(opening, tags, closing)),)


class Qwen3Coder(TaggedCalls):
    """Qwen 3 Coder and the Qwen 3.5 family. The model often leaves out the outer marks, so they
    are optional.
    """

    name = "qwen3_coder"
    opening, closing = OPEN, CLOSE
    tags = replace(Seed.tags, wrapped=True)
    marks = (OPEN, CLOSE, *THINK)
    thought_marks = THINK
    template_signs = ("<function=",)
    openings = ((OPEN, read_tagged_calls(OPEN, tags, CLOSE)), (tags.start, tags.read))

    def openings_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark
    ) -> tuple[str, tuple[Opening, ...]]:
        lark, openings = super().openings_lark(tools, parallel, mark)
        if not self.tags.can_write(tools):
            return lark, openings
        unmarked = call_sequence("call", rf'"\n" {mark(self.tags.start)}', parallel)
        return f"{lark}unmarked: {unmarked}\n", (*openings, Opening(self.tags.start, "unmarked"))


class MiniMax(TaggedCalls):
    """MiniMax M2: invocations with parameters, one block for all of them."""

    name = "minimax"
    opening, closing = "<minimax:tool_call>", "</minimax:tool_call>"
    tags = CallTags(
        start='<invoke name="',
        name_end='">',
        key=('<parameter name="', '">'),
        value=("", "</parameter>"),
        end="</invoke>",
    )
    marks = (opening, closing, *THINK)
    thought_marks = THINK
    template_signs = (opening,)
    openings = ((opening, read_tagged_calls(opening, tags, closing)),)
