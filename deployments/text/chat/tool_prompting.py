"""Decides how a prompt describes the tools: by which template, or as text if none reads them.

The reply is parsed in the dialect in which the prompt describes calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from deployments.contract.model_card import ModelCard
from deployments.text.chat.messages import Message
from deployments.text.chat.template_calls import (
    chosen_template,
    describes_tools,
    shows_results,
)
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
    with_results_in_text,
)
from deployments.text.dialects.dialect import Dialect
from deployments.text.dialects.families.json_lists import Phi4
from deployments.text.dialects.registry import DIALECTS, dialect_of, generic_of
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.text.tool import Tool


@dataclass(frozen=True, slots=True)
class ToolPrompt:
    """The template with the messages and tools that it renders, and the dialect of the reply."""

    template: str
    dialect: Dialect
    messages: Sequence[Message]
    tools: Sequence[Message] | None = None

    @property
    def thinks(self) -> bool:
        """Whether the model thinks: the dialect has thoughts, and the template has their mark."""
        marks = self.dialect.thought_marks
        return marks is not None and marks[0] in self.template


def build_tool_prompt(
    messages: Sequence[Message],
    tools: Sequence[Tool],
    required: bool,
    card: ModelCard,
    tokenizer: TextTokenizer,
) -> ToolPrompt:
    template, dialect = chosen_template(tools, card), family_dialect(tools, card)
    if _template_suffices(template, tools, messages, card, tokenizer):
        shown = _shown(messages, template, dialect, tokenizer)
        return ToolPrompt(template, dialect, shown, [_described(tool) for tool in tools] or None)
    if isinstance(dialect, Phi4) and has_tools_in_messages(template):
        shown = with_calls_in_text(messages, dialect)
        return ToolPrompt(template, dialect, attach(shown, tools))
    return ToolPrompt(template, generic_of(dialect), inject(messages, tools, required))


def family_dialect(tools: Sequence[Tool], card: ModelCard) -> Dialect:
    """The dialect that the model itself writes, with these tools."""
    return DIALECTS[card.dialect] if card.dialect else dialect_of(chosen_template(tools, card))


def _template_suffices(
    template: str,
    tools: Sequence[Tool],
    messages: Sequence[Message],
    card: ModelCard,
    tokenizer: TextTokenizer,
) -> bool:
    if tools:
        return describes_tools(template, card, tokenizer)
    return knows_tools(template) or not any(map(_uses_tools, messages))


def _shown(
    messages: Sequence[Message], template: str, dialect: Dialect, tokenizer: TextTokenizer
) -> Sequence[Message]:
    """Earlier calls and results, in the form that the template reads."""
    if not any(map(_uses_tools, messages)):
        return messages
    if not knows_calls(template):
        messages = with_calls_in_text(messages, dialect)
    if has_results_in_calls(template):
        return with_results_in_calls(messages)
    return messages if shows_results(template, tokenizer) else with_results_in_text(messages)


def _described(tool: Tool) -> Message:
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
    }
    return {"type": "function", "function": function}


def _uses_tools(message: Message) -> bool:
    return message["role"] == "tool" or bool(message.get("tool_calls"))
