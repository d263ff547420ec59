"""The grammar of calls in a reply that is free until one opens."""

import json
from collections.abc import Sequence
from dataclasses import replace
from string import ascii_letters

from deployments.contract.grammar_triggers import GrammarTriggers
from deployments.text.dialects.call_grammar import ANY_OBJECT, constrainable
from deployments.text.dialects.dialect import Dialect, Opening, ReplyContext, WriteMark
from deployments.text.grammar.grammar import MAX_GRAMMAR_BYTES
from deployments.text.tool import Tool


def free_text_grammar(
    dialect: Dialect, context: ReplyContext, parallel: bool, mark: WriteMark
) -> tuple[str, GrammarTriggers, ReplyContext]:
    """The grammar, what begins it, and the context in which the parser sees it begin there.

    Where the schemas make it too large, tools that are not strict take any object. Raises Refused
    for a strict tool whose schema no grammar can express.
    """
    tools = tuple(map(constrainable, context.tools))
    grammar, openings = _written(dialect, tools, parallel, mark)
    if len(grammar) > MAX_GRAMMAR_BYTES:
        tools = tuple(tool if tool.strict else _with_any_object(tool) for tool in tools)
        grammar, openings = _written(dialect, tools, parallel, mark)
    opened = replace(context, openings=openings)
    selectors = _selectors(openings)
    leads = tuple(selectors[opening.rule] + opening.lead for opening in openings)
    return grammar, GrammarTriggers(modes=dialect.trigger_modes(opened), leads=leads), opened


def _written(
    dialect: Dialect, tools: Sequence[Tool], parallel: bool, mark: WriteMark
) -> tuple[str, tuple[Opening, ...]]:
    """One grammar for all openings. A letter, which no model writes, selects the rule of one."""
    lark, openings = dialect.openings_lark(tools, parallel, mark)
    rules = [f'"{letter}" {rule}' for rule, letter in _selectors(openings).items()]
    start = f"start: {' | '.join(rules)}\n"
    return json.dumps({"grammars": [{"lark_grammar": start + lark}]}), openings


def _selectors(openings: Sequence[Opening]) -> dict[str, str]:
    rules = dict.fromkeys(opening.rule for opening in openings)
    return dict(zip(rules, ascii_letters, strict=False))


def _with_any_object(tool: Tool) -> Tool:
    return replace(tool, parameters=ANY_OBJECT)
