"""Makes a conversation of Anthropic's messages: merges turns, and matches calls with results."""

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Literal

from deployments.anthropic.blocks import (
    DocumentBlock,
    ImageBlock,
    Message,
    RedactedThinkingBlock,
    SearchResultBlock,
    ServerBlock,
    ServerResultBlock,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from deployments.anthropic.context_edits import REASONING_FIELD, Fields
from deployments.anthropic.messages_schema import EnabledThinking, PromptFields
from deployments.anthropic.thinking_signatures import SignedThoughts, has_thinking
from deployments.anthropic.tools_schema import (
    AnthropicCustomTool,
    AnthropicNamedChoice,
    NoChoice,
    ServerTool,
)
from deployments.contract.errors import refused
from deployments.media.prompt_media import NO_MEDIA, PromptMedia
from deployments.media.source import Source
from deployments.text.chat.conversation import Conversation, Thinking
from deployments.text.grammar.grammar import from_json_schema
from deployments.text.tool import Tool

CALL_ID = "toolu_"
# Claude Code begins its system prompt with a billing block that changes in every request. It is
# not meant for the model, and no prefix after it would ever be cached.
BILLING = "x-anthropic-billing-header:"
# Templates know three efforts; the two above "high" become the highest.
EFFORTS = {"low": "low", "medium": "medium", "high": "high", "xhigh": "high", "max": "high"}

Readable = TextBlock | ImageBlock | DocumentBlock | SearchResultBlock
WithMedia = ImageBlock | DocumentBlock
Block = (
    Readable | ThinkingBlock | RedactedThinkingBlock | ToolUseBlock | ToolResultBlock | ServerBlock
)
Turn = Sequence[tuple[int, Message]]  # adjacent messages of one role, with their indices


def conversation(request: PromptFields, transcript: "Transcript") -> Conversation:
    """Raises Refused."""
    choice = request.tool_choice
    return Conversation(
        messages=transcript.messages,
        tools=_tools(request, transcript.loaded_tools),
        choice=_choice(request),
        callable=frozenset([choice.name] if isinstance(choice, AnthropicNamedChoice) else ()),
        parallel_calls=request.parallel_calls,
        answer=_answer(request),
        answer_param=request.format_param,
        thinking=_thinking(request),
        add_generation_prompt=not transcript.continues,
        continue_final_message=transcript.continues,
        media=transcript.media,
    )


def _tools(request: PromptFields, names: Collection[str]) -> tuple[Tool, ...]:
    """The tools that are loaded. Raises Refused for a choice that none of them can satisfy."""
    loaded = [
        (index, tool)
        for index, tool in request.custom_tools
        if not tool.defer_loading or request.loads_all_tools or tool.name in names
    ]
    choice = request.tool_choice
    if isinstance(choice, AnthropicNamedChoice) and choice.name not in {
        tool.name for _, tool in loaded
    }:
        message = "`tool_choice.name` is a tool with `defer_loading` that no tool result has loaded"
        raise refused(message, "tool_choice.name")
    if request.forces_calls and not loaded:
        message = "`tool_choice` requires a call, but all `tools` have `defer_loading`"
        raise refused(message, "tool_choice")
    return tuple(_tool(f"tools[{index}]", tool) for index, tool in loaded)


def left_out(request: PromptFields) -> Iterator[str]:
    """Yields the parts of the request that the prompt does not have, in words."""
    for index, tool in enumerate(request.tools or ()):
        if isinstance(tool, ServerTool):
            yield f"tools[{index}] of type {tool.type} is not in the prompt"
    for index, message in enumerate(request.messages):
        for block_index, block in enumerate(_blocks(message)):
            if isinstance(block, ServerBlock):
                path = f"messages[{index}].content[{block_index}]"
                yield f"{path} of type {block.type} is not in the prompt"


def _tool(path: str, tool: AnthropicCustomTool) -> Tool:
    description = tool.description or ""
    if tool.input_examples:
        examples = "\n".join(
            json.dumps(example, ensure_ascii=False) for example in tool.input_examples
        )
        description = f"{description}\nExamples of its input:\n{examples}".lstrip()
    param = f"{path}.input_schema"
    return Tool(tool.name, description, tool.input_schema, bool(tool.strict), param)


def _choice(request: PromptFields) -> Literal["none", "auto", "required"]:
    if request.forces_calls:
        return "required"
    return "none" if isinstance(request.tool_choice, NoChoice) else "auto"


def _answer(request: PromptFields) -> str:
    form = request.answer_format
    if form is None:
        return ""
    return from_json_schema(form.json_schema, f"{request.format_param}.schema")


def _thinking(request: PromptFields) -> Thinking:
    """Returns the thinking that the request asks for.

    It is off without `thinking` where the template allows that: clients expect text in the first
    block.
    """
    thinking, config = request.thinking, request.output_config
    effort = None if config is None or config.effort is None else EFFORTS[config.effort]
    if isinstance(thinking, EnabledThinking):  # agents send it to every model
        budget = thinking.budget_tokens
        return Thinking(enabled=True, effort=effort, budget=budget, required=False)
    is_adaptive = thinking is not None and thinking.type == "adaptive"
    return Thinking(enabled=None if is_adaptive else False, effort=effort)


class Transcript:
    """`messages` as templates take them. `continues`: the reply continues the last one.

    `loaded_tools` has the names of tools that results refer to.
    """

    def __init__(self, request: PromptFields, media: PromptMedia = NO_MEDIA) -> None:
        self.media = media
        self.messages: list[Fields] = []
        self.continues = False
        self.loaded_tools: set[str] = set()
        self._open_calls: dict[str, str] = {}  # calls without a result yet: id to name
        self._caller = ""  # the message that has them
        self._signed_thoughts = SignedThoughts()
        self._add_system(_system_texts(request.system or ()))
        for role, group in groupby(enumerate(request.messages), lambda numbered: numbered[1].role):
            self._add_turn(role, list(group))
        self._check_results()
        if request.messages[-1].role == "assistant":
            self._continue(f"messages[{len(request.messages) - 1}]")

    def _add_turn(self, role: str, turn: Turn) -> None:
        if role == "system":
            texts = (_system_texts(_texts(message)) for _, message in turn)
            self._add_system(list(chain.from_iterable(texts)))
        elif role == "user":
            self._add_user_turn(turn)
        else:
            self._add_assistant_turn(turn)

    def _add_system(self, texts: list[str]) -> None:
        if texts and self.messages and self.messages[-1]["role"] == "system":
            texts = [str(self.messages.pop()["content"]), *texts]
        self._add_message("system", texts)

    def _add_message(self, role: str, texts: list[str]) -> None:
        if texts:
            self.messages.append({"role": role, "content": "\n".join(texts)})

    def _add_user_turn(self, turn: Turn) -> None:
        texts: list[str] = []
        for index, message in turn:
            for block_index, block in enumerate(_blocks(message)):
                if isinstance(block, ToolResultBlock):
                    self._add_message("user", texts)
                    texts = []
                    self._add_result(block, f"messages[{index}].content[{block_index}].tool_use_id")
                elif isinstance(block, Readable):
                    texts.append(_text_of(block, self.media))
        self._add_message("user", texts)
        self._check_results()

    def _add_result(self, block: ToolResultBlock, param: str) -> None:
        name = self._open_calls.pop(block.tool_use_id, None)
        if name is None:
            raise refused(f"`{param}` matches no `tool_use` block of the previous message", param)
        if isinstance(block.content, list):
            self.loaded_tools |= {
                part.tool_name for part in block.content if isinstance(part, ToolReferenceBlock)
            }
        self.messages.append(
            {
                "role": "tool",
                "content": _result_text(block, self.media),
                "tool_call_id": template_id(block.tool_use_id),
                "name": name,
            }
        )

    def _add_assistant_turn(self, turn: Turn) -> None:
        self._check_results()
        self._caller = f"messages[{turn[0][0]}]"
        texts = ["".join(_texts(message)) for _, message in turn]
        fields: Fields = {"role": "assistant", "content": "\n".join(filter(None, texts))}
        thought = "".join(self._thoughts(index, message) for index, message in turn)
        if thought:
            fields[REASONING_FIELD] = thought
        blocks = [block for _, message in turn for block in _blocks(message)]
        calls = [self._call(block) for block in blocks if isinstance(block, ToolUseBlock)]
        results = (block for block in blocks if isinstance(block, ServerResultBlock))
        self.loaded_tools |= {name for result in results for name in result.found_tools}
        if calls:
            fields["tool_calls"] = calls
        self.messages.append(fields)

    def _thoughts(self, index: int, message: Message) -> str:
        path = f"messages[{index}].content"
        return "".join(
            self._thought(block, f"{path}[{block_index}].signature")
            for block_index, block in enumerate(_blocks(message))
            if isinstance(block, ThinkingBlock)
        )

    def _thought(self, block: ThinkingBlock, param: str) -> str:
        if has_thinking(block.thinking, block.signature):
            return self._signed_thoughts.thought_of(block.signature, param)
        return block.thinking

    def _call(self, call: ToolUseBlock) -> object:
        if call.id in self._open_calls:
            message = f"`{self._caller}` has more than one `tool_use` with the id {call.id}"
            raise refused(message, self._caller)
        self._open_calls[call.id] = call.name
        function = {"name": call.name, "arguments": call.input}
        return {"id": template_id(call.id), "type": "function", "function": function}

    def _check_results(self) -> None:
        if self._open_calls:
            ids = ", ".join(self._open_calls)
            message = f"`{self._caller}`: the next message has no `tool_result` for {ids}"
            raise refused(message, self._caller)

    def _continue(self, param: str) -> None:
        """A last message without text is not continued."""
        last = self.messages[-1]
        text = str(last["content"])
        if text != text.rstrip():
            raise refused(f"`{param}`: the last text must not end with whitespace", param)
        if text:
            self.continues = True
        elif REASONING_FIELD in last:
            raise refused(f"`{param}`: the last block must not be a thought", param)
        else:
            self.messages.pop()


def template_id(call_id: str) -> str:
    """A call's id as the dialect made it: some templates check its form."""
    return call_id.removeprefix(CALL_ID)


def public_id(call_id: str) -> str:
    return CALL_ID + call_id.removeprefix("call_")


def _blocks(message: Message) -> Sequence[Block]:
    if isinstance(message.content, str):
        return [TextBlock(type="text", text=message.content)]
    return message.content


def _texts(message: Message) -> list[str]:
    return [block.text for block in _blocks(message) if isinstance(block, TextBlock)]


def _system_texts(content: str | Sequence[str | TextBlock]) -> list[str]:
    parts = [content] if isinstance(content, str) else content
    texts = [part if isinstance(part, str) else part.text for part in parts]
    return [text for text in texts if text and not text.startswith(BILLING)]


def _text_of(block: Readable | ToolReferenceBlock, media: PromptMedia) -> str:
    return block.text(media) if isinstance(block, WithMedia) else block.text


def sources_of(request: PromptFields) -> list[Source]:
    """The media of all messages, in their order."""
    found: list[Source | None] = []
    for index, message in enumerate(request.messages):
        content = () if isinstance(message.content, str) else message.content
        for block_index, block in enumerate(content):
            path = f"messages[{index}].content[{block_index}]"
            if isinstance(block, WithMedia):
                found.append(block.media(path))
            elif isinstance(block, ToolResultBlock) and isinstance(block.content, list):
                returned = (
                    part.media(f"{path}.content[{part_index}]")
                    for part_index, part in enumerate(block.content)
                    if isinstance(part, WithMedia)
                )
                found += (
                    replace(tool_source, from_tool=True)
                    for tool_source in returned
                    if tool_source is not None
                )
    return [source for source in found if source is not None]


def _result_text(block: ToolResultBlock, media: PromptMedia) -> str:
    content = block.content or ""
    parts = (content,) if isinstance(content, str) else (_text_of(part, media) for part in content)
    text = "\n".join(parts)
    if not block.is_error:
        return text
    return f"Error: {text}" if text else "Error"
