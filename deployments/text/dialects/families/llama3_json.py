"""Llama 3.1 to 3.3: a reply of JSON objects with semicolons between, perhaps after a mark."""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import (
    bare_json_openings,
    call_rules,
    call_sequence,
    json_call_body,
    literal,
)
from deployments.text.dialects.dialect import Opening, WriteMark
from deployments.text.dialects.layouts.marked_blocks import THINK, MarkedBlocks
from deployments.text.dialects.parsing.incremental import Incremental
from deployments.text.dialects.parsing.json_calls import read_named_call, read_separated_calls
from deployments.text.dialects.parsing.reading import ReplyReader
from deployments.text.tool import Tool


def read_tagged_call(reader: ReplyReader) -> Incremental[None]:
    """The form of custom tools in the training of Llama 3.1."""
    name, _ = yield from reader.read_name_until(">")
    yield from read_named_call(reader, name)
    yield from reader.buffer.expect_close("</function>")


class Llama3Json(MarkedBlocks):
    name = "llama3_json"
    marks = ("<|python_tag|>", *THINK)
    thought_marks = THINK
    template_signs = ("<|python_tag|>", '"parameters": dictionary of argument name and its value')
    openings = (("<|python_tag|>", read_separated_calls), ("<function=", read_tagged_call))
    opening = "<|python_tag|>"
    unmarked_calls = True
    bare_openings = (("{", read_separated_calls), ("[", read_separated_calls))

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        return call_rules(
            call_sequence("call", '"; "', parallel), tools, json_call_body("parameters")
        )

    def openings_lark(
        self, tools: Sequence[Tool], parallel: bool, mark: WriteMark
    ) -> tuple[str, tuple[Opening, ...]]:
        lark, openings = super().openings_lark(tools, parallel, mark)
        tagged = " | ".join(
            f'{literal(f"{tool.name}>")} call_{index}_arguments "</function>"'
            for index, tool in enumerate(tools)
        )
        lines, bare = bare_json_openings(tools, parallel)
        tag = Opening("<function=", "tagged")
        return f"{lark}tagged: {tagged}\n{lines}", (*openings, tag, *bare)
