"""FunctionGemma and Gemma 4: calls with keys without quotes, and strings between marks."""

from collections.abc import Sequence

from deployments.text.dialects.call_grammar import (
    arguments_rule,
    call_rules,
    call_sequence,
    literal,
    ordered_items,
)
from deployments.text.dialects.dialect import ReplyContext, WriteMark
from deployments.text.dialects.layouts.marked_blocks import CallReader, MarkedBlocks
from deployments.text.dialects.parameter_grammar import (
    Parameter,
    can_be_text,
    parameters_of,
    text_value,
)
from deployments.text.dialects.parsing.incremental import Incremental, NotACall
from deployments.text.dialects.parsing.literals import LiteralReader
from deployments.text.dialects.parsing.reading import ReplyReader
from deployments.text.dialects.parsing.values import STRING, types_of
from deployments.text.grammar.grammar import lark_json
from deployments.text.tool import Tool

CALL = "call:"


def notated_call(quote: str, closing: str) -> CallReader:
    def read(reader: ReplyReader) -> Incremental[None]:
        buffer = reader.buffer
        yield from buffer.skip_space()
        yield from buffer.expect(CALL)
        name = yield from reader.read_name()
        if (yield from buffer.peek()) not in ("{", ""):
            raise NotACall
        reader.begin_call(name)
        yield from LiteralReader(
            buffer, reader.emit_arguments, string_mark=quote, bare_keys=True
        ).read()
        reader.end_call()
        yield from buffer.expect_close(closing)

    return read


class FunctionGemma(MarkedBlocks):
    name = "gemma"
    opening, closing, quote = "<start_function_call>", "<end_function_call>", "<escape>"
    marks: tuple[str, ...] = (opening, closing, quote)
    template_signs = (opening,)
    openings = ((opening, notated_call(quote, closing)),)

    def listed_lark(self, tools: Sequence[Tool], parallel: bool, mark: WriteMark) -> str:
        def body(tool: Tool, rule: str) -> str:
            head = literal(CALL + tool.name)
            parameters = parameters_of(tool)
            if parameters is None:
                call = f"{head} {rule}_arguments {mark(self.closing)}"
                return f"{call}\n{arguments_rule(tool, rule)}"
            call = f'{head} "{{" {rule}_list "}}" {mark(self.closing)}'
            return "\n".join([call, *self._parameters(rule, parameters, mark)])

        return call_rules(call_sequence("call", mark(self.opening), parallel), tools, body)

    def _parameters(self, rule: str, parameters: Sequence[Parameter], mark: WriteMark) -> list[str]:
        named = [(f"{rule}_{index}", each) for index, each in enumerate(parameters)]
        lines = ordered_items(rule, [(part, each.required) for part, each in named], '","')
        for part, each in named:
            value, rules = self._value(part, each, mark)
            lines += [f"{part}: {literal(each.name + ':')} {value}", *rules]
        return lines

    def _value(self, rule: str, parameter: Parameter, mark: WriteMark) -> tuple[str, list[str]]:
        """A string between marks, if that can be every value of the schema; else JSON."""
        if types_of(parameter.schema, {}) == STRING and can_be_text(parameter, self.quote):
            value, rules = text_value(rule, parameter, self.quote, False, mark)
            return f"{mark(self.quote)} {value}", rules
        return f"{rule}_json", [f"{rule}_json: {lark_json(parameter.schema, 'tools')}"]


class Gemma4(FunctionGemma):
    name = "gemma4"
    opening, closing, quote = "<|tool_call>", "<tool_call|>", '<|"|>'
    thought, thought_end = "<|channel>", "<channel|>"
    thought_marks = (f"{thought}thought", thought_end)
    marks = (opening, closing, quote, thought, thought_end)
    template_signs = (opening,)
    openings = ((opening, notated_call(quote, closing)),)

    def kept_marks(self, context: ReplyContext) -> tuple[str, ...]:
        return self.marks if context.tools else (self.thought, self.thought_end)
