"""How a model is told of its tools: by which of its templates, or in words where it has none.

The dialect is that in which calls are told, so that what the model says is read as it was taught.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from deployments.text.chat.messages import Message
from deployments.text.chat.templates import (
    has_results_in_calls,
    has_tools_in_messages,
    knows_calls,
    knows_tools,
)
from deployments.text.chat.tool_injection import (
    attach,
    inject,
    with_calls_in_text,
    with_results_in_calls,
)
from deployments.text.dialects.dialect import Dialect
from deployments.text.dialects.families.phi4 import Phi4
from deployments.text.dialects.registry import DIALECTS, dialect_of, instructed
from deployments.text.tool import Tool
from deployments.wire import ModelCard


@dataclass(frozen=True, slots=True)
class ToolPrompt:
    """What `template` is given, and the dialect of the reply."""

    template: str
    dialect: Dialect
    messages: Sequence[Message]
    tools: Sequence[Message] | None = None

    @property
    def thinks(self) -> bool:
        """Whether the dialect has thoughts and the template shows that the model has them too."""
        marks = self.dialect.thought_marks
        return marks is not None and marks[0] in self.template


def build_tool_prompt(
    messages: Sequence[Message], tools: Sequence[Tool], required: bool, card: ModelCard
) -> ToolPrompt:
    template = _template(tools, card)
    dialect = DIALECTS[card.dialect] if card.dialect else dialect_of(template)
    if knows_tools(template) or not (tools or any(map(_tells_of_tools, messages))):
        shown = _shown(messages, template, dialect)
        return ToolPrompt(template, dialect, shown, [_described(tool) for tool in tools] or None)
    if isinstance(dialect, Phi4) and has_tools_in_messages(template):
        shown = with_calls_in_text(messages, dialect)
        return ToolPrompt(template, dialect, attach(shown, tools))
    return ToolPrompt(template, instructed(dialect), inject(messages, tools, required))


def _shown(messages: Sequence[Message], template: str, dialect: Dialect) -> Sequence[Message]:
    """The calls and results of the past where the template looks for such."""
    if not knows_calls(template):
        return with_calls_in_text(messages, dialect)
    return with_results_in_calls(messages) if has_results_in_calls(template) else messages


def _template(tools: Sequence[Tool], card: ModelCard) -> str:
    """The one for tools where there is such a one and its calls are of a form that is known."""
    own = card.tool_template or ""
    known = card.dialect or dialect_of(own).name != "generic"
    return own if tools and own and known else card.chat_template or ""


def _described(tool: Tool) -> Message:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def _tells_of_tools(message: Message) -> bool:
    return message["role"] == "tool" or bool(message.get("tool_calls"))
