"""Finds by rendering what a template does with calls and with their results.

A template of a family that is not known here may describe tools in a form of its own. The reply to
it would then be taken for text. Others read calls and leave out results without a word.
"""

import json
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

from deployments.contract.errors import Refused
from deployments.contract.model_card import ModelCard
from deployments.text.chat.messages import Message, forms
from deployments.text.chat.templates import knows_tools
from deployments.text.dialects.dialect import ReplyContext
from deployments.text.dialects.registry import DIALECTS, dialect_of
from deployments.text.reply import fold_reply
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.text.tool import Tool

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
ANSWERED: Sequence[Message] = (
    *CALLED,
    {"role": "tool", "tool_call_id": "call12345", "name": NAME, "content": "R-r"},
)
Ask = Callable[[str, TextTokenizer], bool]
_known: "WeakKeyDictionary[TextTokenizer, dict[tuple[str, str], bool]]" = WeakKeyDictionary()


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
    return _asked(("call", template), tokenizer, _is_read_back)


def shows_results(template: str, tokenizer: TextTokenizer) -> bool:
    """Whether a prompt by `template` differs by what a tool answered."""
    return _asked(("result", template), tokenizer, _shows_result)


def _asked(key: tuple[str, str], tokenizer: TextTokenizer, ask: Ask) -> bool:
    known = _known.setdefault(tokenizer, {})
    if key not in known:
        known[key] = ask(key[1], tokenizer)
    return known[key]


def _shows_result(template: str, tokenizer: TextTokenizer) -> bool:
    answered = _rendered(ANSWERED, template, tokenizer, asks=True)
    return answered is None or answered != _rendered(CALLED, template, tokenizer, asks=True)


def _is_read_back(template: str, tokenizer: TextTokenizer) -> bool:
    asked = _rendered(ASKED, template, tokenizer, asks=True)
    called = _rendered(CALLED, template, tokenizer, asks=False)
    if asked is None or called is None:
        return True
    before = (
        asked if called.startswith(asked) else _rendered(ASKED, template, tokenizer, asks=False)
    )
    context = ReplyContext(tools=(Tool(NAME, parameters=PARAMETERS),))
    parser = dialect_of(template).parser(context)
    pieces = [*parser.push(called.removeprefix(before or "")), *parser.finish()]
    calls = [(call.name, json.loads(call.arguments)) for call in fold_reply(pieces).calls]
    return calls == [(NAME, ARGUMENTS)]


def _rendered(
    messages: Sequence[Message], template: str, tokenizer: TextTokenizer, *, asks: bool
) -> str | None:
    """None: the template refuses the messages in any form, and so it does those of a request."""
    for form in forms(messages):
        try:
            return tokenizer.render_chat(
                form, tools=[TOOL], add_generation_prompt=asks, template=template
            )
        except Refused:
            continue
    return None
