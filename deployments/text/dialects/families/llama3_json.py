"""Llama 3.1 to 3.3: the reply is JSON objects, perhaps behind a mark, with semicolons between."""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import calls_lark, json_call, several
from deployments.text.dialects.dialect import Mark
from deployments.text.dialects.layouts.marked_blocks import THINK, Family
from deployments.text.dialects.parsing.incremental import Steps
from deployments.text.dialects.parsing.json_calls import named_call, separated_calls
from deployments.text.dialects.parsing.reading import Reading
from deployments.text.tool import Tool


def tagged_call(reading: Reading) -> Steps[None]:
    """The form that Llama 3.1 was shown for tools of one's own."""
    name, _ = yield from reading.name_until(">")
    yield from named_call(reading, name)
    yield from reading.source.close("</function>")


class Llama3Json(Family):
    name = "llama3_json"
    marks = ("<|python_tag|>", *THINK)
    thought_marks = THINK
    signs = ("<|python_tag|>", '"parameters": dictionary of argument name and its value')
    openings = (("<|python_tag|>", separated_calls), ("<function=", tagged_call))
    opening = "<|python_tag|>"
    unmarked = True
    bare = (("{", separated_calls), ("[", separated_calls))

    def listed(self, tools: Sequence[Tool], parallel: bool, mark: Mark) -> str:
        return calls_lark(several("call", '"; "', parallel), tools, json_call("parameters"))
