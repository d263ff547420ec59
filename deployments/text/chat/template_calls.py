"""Finds by rendering whether a dialect reads calls in the form in which a template writes them.

A template of a family that is not known here may describe tools in a form of its own. The reply to
it would then be taken for text.
"""

import json
from collections.abc import Sequence
from weakref import WeakKeyDictionary

from deployments.text.chat.messages import Message
from deployments.text.chat.templates import knows_tools
from deployments.text.dialects.dialect import Dialect, ReplyContext
from deployments.text.dialects.registry import DIALECTS, dialect_of
from deployments.text.reply import fold_reply
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.text.tool import Tool
from deployments.wire import ModelCard, Refused

NAME, ARGUMENTS = "probe", {"x": "A-a"}
PROPERTIES = {"x": {"type": "string", "description": "a text"}}
PARAMETERS = {"type": "object", "properties": PROPERTIES, "required": ["x"]}
TOOL = {
    "type": "function",
    "function": {"name": NAME, "description": "a probe", "parameters": PARAMETERS},
}
CALL = {"id": "call12345", "type": "function", "function": {"name": NAME, "arguments": ARGUMENTS}}
ASKED: Sequence[Message] = ({"role": "user", "content": "U-u"},)
CALLED: Sequence[Message] = (*ASKED, {"role": "assistant", "content": "", "tool_calls": [CALL]})
_known: "WeakKeyDictionary[TextTokenizer, dict[str, bool]]" = WeakKeyDictionary()


def chosen_template(tools: Sequence[Tool], card: ModelCard) -> str:
    """The template for tools, if there is one and its dialect is known."""
    own = card.tool_template or ""
    known = card.dialect or dialect_of(own).name != "generic"
    return own if tools and own and known else card.chat_template or ""


def describes_tools(template: str, card: ModelCard, tokenizer: TextTokenizer) -> bool:
    """Whether `template` describes tools so that the replies to it are understood."""
    dialect = DIALECTS[card.dialect] if card.dialect else dialect_of(template)
    if not knows_tools(template) or card.dialect or dialect.name != "generic":
        return knows_tools(template)
    known = _known.setdefault(tokenizer, {})
    if template not in known:
        known[template] = _is_read_back(template, dialect, tokenizer)
    return known[template]


def _is_read_back(template: str, dialect: Dialect, tokenizer: TextTokenizer) -> bool:
    def render(messages: Sequence[Message], *, asks: bool) -> str:
        return tokenizer.render_chat(
            messages, tools=[TOOL], add_generation_prompt=asks, template=template
        )

    try:
        asked, called = render(ASKED, asks=True), render(CALLED, asks=False)
    except Refused:  # its errors are those of real requests, too
        return True
    before = asked if called.startswith(asked) else render(ASKED, asks=False)
    parser = dialect.parser(ReplyContext(tools=(Tool(NAME, parameters=PARAMETERS),)))
    pieces = [*parser.push(called.removeprefix(before)), *parser.finish()]
    calls = [(call.name, json.loads(call.arguments)) for call in fold_reply(pieces).calls]
    return calls == [(NAME, ARGUMENTS)]
