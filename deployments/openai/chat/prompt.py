"""Makes the prompt of a chat request: turns OpenAI's messages and tools into a conversation."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from deployments.contract.errors import refused
from deployments.contract.model_card import ModelCard
from deployments.ingress.generation.plan import check_ids
from deployments.media.prompt_media import NO_MEDIA, PromptMedia
from deployments.openai.chat.schema import (
    AssistantMessage,
    ChatRequest,
    CustomToolCall,
    MediaPart,
    Message,
    RefusalPart,
    TextPart,
    ToolCall,
    ToolMessage,
)
from deployments.openai.fields.custom_tools import arguments_of
from deployments.openai.fields.tool_arguments import arguments_object
from deployments.openai.fields.tools import (
    CustomTool,
    FunctionTool,
    ResolvedTools,
    custom_tool,
    function_tool,
    resolve_tools,
)
from deployments.text.chat.conversation import Conversation, Thinking, prepare_prompt
from deployments.text.chat.media_parts import expand_text, ids_with_placeholders
from deployments.text.chat.prompt import Prompt
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.text.tool import Tool

# Fields for templates and parsers: a raw prompt has neither.
TEMPLATED = (
    "tools",
    "reasoning_effort",
    "reasoning_format",
    "thinking",
    "thinking_token_budget",
    "reasoning_control",
    "add_generation_prompt",
    "continue_final_message",
    "chat_template_kwargs",
    "chat_template_args",
)


def chat_prompt(
    request: ChatRequest,
    card: ModelCard,
    tokenizer: TextTokenizer,
    media: PromptMedia = NO_MEDIA,
) -> Prompt:
    """Raises Refused."""
    tools = _tools(request)
    if request.raw:
        return _raw(request, card, tokenizer, media)
    prompt = prepare_prompt(_conversation(request, tools, media), card, tokenizer)
    return replace(prompt, ids=_ids(request, prompt.ids, card))


def _tools(request: ChatRequest) -> ResolvedTools:
    choice = request.tool_choice
    selected = choice if choice is None or isinstance(choice, str) else choice.selection
    given = [_tool(f"tools[{index}]", tool) for index, tool in enumerate(request.tools or ())]
    return resolve_tools(given, selected)


def _tool(path: str, tool: FunctionTool | CustomTool) -> tuple[str, Tool]:
    if isinstance(tool, CustomTool):
        return f"{path}.custom", custom_tool(f"{path}.custom", tool.custom)
    return f"{path}.function", function_tool(f"{path}.function", tool.function)


def _raw(
    request: ChatRequest, card: ModelCard, tokenizer: TextTokenizer, media: PromptMedia
) -> Prompt:
    """The contents of all messages, joined without a separator.

    Dynamo does not document what this field does with several messages. This reading loses none.
    """
    for name in TEMPLATED:
        if getattr(request, name):
            message = f"`nvext.use_raw_prompt` cannot be combined with `{name}`"
            raise refused(message, "nvext.use_raw_prompt")
    text = "".join(text_of(message.content, media) for message in request.messages)
    expanded = expand_text(text, media, card.media)
    encode = partial(tokenizer.encode, add_special_tokens=True, limit=card.context_length)
    encoded, ranges = ids_with_placeholders(expanded, encode, card, "messages")
    ids = _ids(request, encoded, card)
    if not ids:
        raise refused(
            "`messages` must have some text where `nvext.use_raw_prompt` is true", "messages"
        )
    answer = _answer(request)
    return Prompt(
        text=expanded.text, ids=ids, grammar=answer, media=expanded.media, placeholder_ranges=ranges
    )


def _ids(request: ChatRequest, ids: Sequence[int], card: ModelCard) -> Sequence[int]:
    """The ids that the client sends in `nvext.token_data`, or else `ids`."""
    given = request.nvext.token_data if request.nvext is not None else None
    if given and request.sources:
        message = "`nvext.token_data` cannot be combined with images, sounds or files"
        raise refused(message, "nvext.token_data")
    check_ids(given or (), card, "nvext.token_data")
    return given or ids


def _conversation(request: ChatRequest, tools: ResolvedTools, media: PromptMedia) -> Conversation:
    continues = bool(request.continue_final_message)
    generation_prompt = request.add_generation_prompt
    return Conversation(
        messages=list(_plain_messages(request.messages, media)),
        tools=tools.tools,
        choice=tools.choice,
        callable=tools.callable,
        parallel_calls=not tools.one and request.parallel_tool_calls is not False,
        answer=_answer(request),
        answer_param="" if request.structure is None else request.structure.param,
        thinking=_thinking(request),
        verbosity=request.verbosity,
        split_thoughts=request.reasoning_format != "none",
        template_kwargs=request.chat_template_kwargs or request.chat_template_args or {},
        add_generation_prompt=not continues if generation_prompt is None else generation_prompt,
        continue_final_message=continues,
        media=media,
    )


def _answer(request: ChatRequest) -> str:
    return "" if request.structure is None else request.structure.write()


def _thinking(request: ChatRequest) -> Thinking:
    """The thinking that the fields request; errors name the most specific field."""
    effort = request.reasoning_effort
    enabled, budget, param = _is_enabled(effort), request.thinking_token_budget, "reasoning_effort"
    if request.thinking is not None:
        enabled, param = request.thinking.type == "enabled", "thinking"
        budget = request.thinking.budget_tokens if budget is None else budget
    if not enabled and budget is not None:
        param = "thinking_token_budget"
    return Thinking(
        enabled=enabled,
        effort=None if effort == "none" else effort,
        budget=budget,
        can_be_ended=bool(request.reasoning_control),
        param=param,
    )


def _is_enabled(effort: str | None) -> bool | None:
    """None for "minimal": models that do not think accept it, too."""
    if effort is None or effort == "minimal":
        return None
    return effort != "none"


def _plain_messages(messages: Sequence[Message], media: PromptMedia) -> Iterator[dict[str, object]]:
    """Messages as templates expect them. A tool's result has the name of its call: some templates
    require it.
    """
    names: dict[str, str] = {}  # of the functions called, by the call's id
    for message in messages:
        fields = _plain(message, media)
        if isinstance(message, AssistantMessage):
            names |= {call.id: call.name for call in message.tool_calls or ()}
            fields |= _plain_answer(message)
        if isinstance(message, ToolMessage):
            fields["tool_call_id"] = message.tool_call_id
            fields.setdefault("name", names[message.tool_call_id])
        yield fields


def _plain(message: Message, media: PromptMedia) -> dict[str, object]:
    fields: dict[str, object] = {"role": message.role, "content": text_of(message.content, media)}
    if message.name is not None:
        fields["name"] = message.name
    return fields


def _plain_answer(message: AssistantMessage) -> dict[str, object]:
    fields: dict[str, object] = {}
    if not message.content:
        fields["content"] = message.refusal or ""
    reasoning = message.reasoning_content or message.reasoning
    if reasoning:
        fields["reasoning_content"] = reasoning
    if message.tool_calls:
        fields["tool_calls"] = [_plain_call(call) for call in message.tool_calls]
    return fields


def _plain_call(call: ToolCall | CustomToolCall) -> dict[str, object]:
    if isinstance(call, CustomToolCall):
        arguments = arguments_of(call.custom.input)
    else:
        arguments = arguments_object(call.function.arguments)
    function = {"name": call.name, "arguments": arguments}
    return {"id": call.id, "type": "function", "function": function}


def text_of(
    content: str | Sequence[TextPart | RefusalPart | MediaPart] | None,
    media: PromptMedia = NO_MEDIA,
) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(
        part.text if isinstance(part, TextPart | RefusalPart) else media.text_of(part.source(""))
        for part in content
    )
