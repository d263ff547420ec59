"""The body of POST /v1/chat/completions: text conversations, every field honoured or refused."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self, TypeVar

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from deployments.contract.errors import refused
from deployments.ingress.generation.plan import PlanOptions
from deployments.ingress.http.schema import Items, Strict, Switch
from deployments.ingress.http.validation import parse, refuse_unsupported
from deployments.media.source import Source
from deployments.openai.fields.common import Citations, TopLogprobs, Verbosity
from deployments.openai.fields.media import AudioPart, FilePart, ImagePart
from deployments.openai.fields.tools import CustomTool, ToolChoice, ToolList
from deployments.openai.fields.vllm_fields import NEUTRAL as COMMON
from deployments.openai.fields.vllm_fields import VllmFields

# Known but not supported: only null and the values listed, which change nothing, are accepted.
NEUTRAL: dict[str, tuple[object, ...]] = {
    **COMMON,
    "add_special_tokens": (False,),
    "audio": (),
    "chat_template": (),
    "documents": ([],),
    "echo": (False,),
    "include_reasoning": (True,),
    "modalities": (["text"],),
    "moderation": (),
    "web_search_options": (),
}
# The older form of tools: only values that request none are accepted.
LEGACY: dict[str, tuple[object, ...]] = {"function_call": ("none", "auto"), "functions": ([],)}
OTHER_PARTS = ("video_url", "audio_url")
USER_PARTS = ("image_url", "input_audio", "file")


def _served(part: object) -> object:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in OTHER_PARTS:
        raise ValueError(f"is of type {kind}, which is not supported by this server")
    return part


def _text_only(part: object) -> object:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in USER_PARTS:
        raise ValueError(f"is of type {kind}, which only messages of users and tools may have")
    return _served(part)


class TextPart(Strict):
    """Cache breakpoints are hints: every prefix is cached."""

    type: Literal["text"]
    text: str
    prompt_cache_breakpoint: JsonValue = None
    cache_control: JsonValue = None  # Anthropic's name, which gateways pass on


class RefusalPart(Strict):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


AnswerPart = Annotated[TextPart | RefusalPart, Field(discriminator="type")]
Parts = Annotated[Items[Annotated[TextPart, BeforeValidator(_text_only)]], Field(min_length=1)]
MediaPart = ImagePart | AudioPart | FilePart
UserPart = Annotated[
    Annotated[TextPart | MediaPart, Field(discriminator="type")], BeforeValidator(_served)
]


def _sources(content: str | Sequence[TextPart | MediaPart] | None, path: str) -> list[Source]:
    parts = content if isinstance(content, list) else []
    return [
        part.source(f"{path}[{index}]")
        for index, part in enumerate(parts)
        if not isinstance(part, TextPart)
    ]


class NamedMessage(Strict):
    """Some clients set `type` in every message."""

    name: str | None = None
    type: Literal["text"] | None = None


class Instruction(NamedMessage):
    role: Literal["developer", "system"]
    content: str | Parts


class UserMessage(NamedMessage):
    role: Literal["user"]
    content: str | Annotated[Items[UserPart], Field(min_length=1)]

    def sources(self, path: str) -> list[Source]:
        return _sources(self.content, path)


class FunctionCall(Strict):
    """The SDK's `parse` adds `parsed_arguments`, which repeat the arguments."""

    name: str
    arguments: str  # JSON
    parsed_arguments: JsonValue = None


class ToolCall(Strict):
    """Clients that collect a stream may leave `index` in the call."""

    index: int | None = None
    id: str
    type: Literal["function"]
    function: FunctionCall

    @property
    def name(self) -> str:
        return self.function.name


class CustomCall(Strict):
    name: str
    input: str


class CustomToolCall(Strict):
    index: int | None = None
    id: str
    type: Literal["custom"]
    custom: CustomCall

    @property
    def name(self) -> str:
        return self.custom.name


AnyToolCall = Annotated[ToolCall | CustomToolCall, Field(discriminator="type")]


class AssistantMessage(NamedMessage):
    """Answers as the SDKs print them are accepted: with empty fields, and with fields in which
    gateways repeat the content or the reasoning. A message without content is an empty answer.
    """

    role: Literal["assistant"]
    content: str | Items[AnswerPart] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Items[AnyToolCall] | None = None
    annotations: Citations | None = None
    audio: None = None
    function_call: None = None
    parsed: JsonValue = None
    provider_specific_fields: JsonValue = None
    reasoning_details: JsonValue = None
    thinking_blocks: JsonValue = None


class ToolMessage(Strict):
    """An empty result may have no content."""

    role: Literal["tool"]
    content: str | Items[UserPart] | None = None
    tool_call_id: str
    name: str | None = None

    def sources(self, path: str) -> list[Source]:
        return [replace(source, from_tool=True) for source in _sources(self.content, path)]


def _known_role(message: object) -> object:
    if isinstance(message, dict) and message.get("role") == "function":
        raise ValueError("has the role function, which is not supported: use tool")
    return message


Message = Annotated[
    Instruction | UserMessage | AssistantMessage | ToolMessage,
    Field(discriminator="role"),
    BeforeValidator(_known_role),
]


class Prediction(Strict):
    """Text that the answer may repeat: a hint, which does not change the answer."""

    type: Literal["content"]
    content: str | Parts


class ThinkingSwitch(Strict):
    """DeepSeek's and GLM's form."""

    type: Literal["enabled", "disabled"]
    budget_tokens: Annotated[int, Field(ge=0)] | None = None


def _bound(limit: object) -> object:
    """llama-server writes -1 for no limit."""
    return None if limit == -1 else limit


Budget = Annotated[Annotated[int, Field(ge=0)] | None, BeforeValidator(_bound)]


class ChatRequest(VllmFields):
    messages: Annotated[Items[Message], Field(min_length=1)]
    max_tokens: Annotated[Annotated[int, Field(ge=1)] | None, BeforeValidator(_bound)] = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: Switch = None
    top_logprobs: TopLogprobs | None = None

    tools: ToolList | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: Switch = None
    prediction: Prediction | None = None

    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = (
        None
    )
    verbosity: Verbosity | None = None
    reasoning_format: Literal["none", "auto", "deepseek"] | None = None
    thinking: ThinkingSwitch | None = None
    thinking_token_budget: Annotated[int, Field(ge=0)] | None = None
    # llama-server's names for the same
    thinking_budget_tokens: Budget = None
    reasoning_budget_tokens: Budget = None

    # llama-server's. The first two are for streams; with the last a client may end thinking later.
    return_progress: Switch = None
    timings_per_token: Switch = None
    reasoning_control: Switch = None

    add_generation_prompt: Switch = None
    continue_final_message: Switch = None
    chat_template_kwargs: dict[str, JsonValue] | None = None
    chat_template_args: dict[str, JsonValue] | None = None  # Dynamo's name for the same

    @property
    def limits(self) -> tuple[int | None, ...]:
        return self.max_tokens, self.max_completion_tokens

    @property
    def token_limit(self) -> int | None:
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens
        return self.max_tokens

    @property
    def plan_options(self) -> PlanOptions:
        return replace(
            super().plan_options,
            prompt_logprobs=self.prompt_logprobs,
            tells_progress=bool(self.return_progress and self.stream),
        )

    @property
    def custom_names(self) -> frozenset[str]:
        """The tools that take a text."""
        custom = (tool for tool in self.tools or () if isinstance(tool, CustomTool))
        return frozenset(tool.custom.name for tool in custom)

    @property
    def raw(self) -> bool:
        """Whether the prompt is the text of the messages, without a template."""
        return self.nvext is not None and bool(self.nvext.use_raw_prompt)

    @property
    def sources(self) -> list[Source]:
        """The media of all messages, in their order."""
        return [
            source
            for index, message in enumerate(self.messages)
            if isinstance(message, UserMessage | ToolMessage)
            for source in message.sources(f"messages[{index}].content")
        ]

    @property
    def is_heavy(self) -> bool:
        """Whether preparing takes long: there are grammars, or a search for tokens."""
        return self.structure is not None or bool(self.tools or self.dry_multiplier)

    @model_validator(mode="after")
    def _chat_fields_agree(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise refused("`top_logprobs` requires `logprobs`: true", "top_logprobs")
        if self.continue_final_message and self.add_generation_prompt:
            message = (
                "`continue_final_message` cannot be combined with `add_generation_prompt`: true"
            )
            raise refused(message, "continue_final_message")
        if self.chat_template_kwargs and self.chat_template_args:
            message = "`chat_template_args` cannot be combined with `chat_template_kwargs`"
            raise refused(message, "chat_template_args")
        return self

    @model_validator(mode="after")
    def _join_budgets(self) -> Self:
        for name in ("thinking_budget_tokens", "reasoning_budget_tokens"):
            budget = getattr(self, name)
            if None not in (budget, self.thinking_token_budget):
                raise refused(f"`{name}` cannot be combined with another name of this budget", name)
            if budget is not None:
                self.thinking_token_budget = budget
        return self

    @model_validator(mode="after")
    def _thinking_fields_agree(self) -> Self:
        if self.thinking is None:
            return self
        off = self.thinking.type == "disabled"
        if self.reasoning_effort not in (None, "minimal") and off != (
            self.reasoning_effort == "none"
        ):
            raise refused("`thinking` contradicts `reasoning_effort`", "thinking")
        if None not in (self.thinking.budget_tokens, self.thinking_token_budget):
            message = "`thinking.budget_tokens` cannot be combined with `thinking_token_budget`"
            raise refused(message, "thinking.budget_tokens")
        return self

    @model_validator(mode="after")
    def _results_answer_calls(self) -> Self:
        called: set[str] = set()
        for index, message in enumerate(self.messages):
            if isinstance(message, AssistantMessage):
                called.update(call.id for call in message.tool_calls or ())
            elif isinstance(message, ToolMessage) and message.tool_call_id not in called:
                param = f"messages[{index}].tool_call_id"
                raise refused(f"`{param}` must be the id of a call in an earlier message", param)
        return self


ChatT = TypeVar("ChatT", bound=ChatRequest)


def parse_chat(body: object) -> ChatRequest:
    return parse_chat_as(ChatRequest, body)


def parse_chat_as(schema: type[ChatT], body: object) -> ChatT:
    """A chat of another protocol, with fields of its own."""
    known = refuse_unsupported(body, NEUTRAL)
    for name in LEGACY.keys() & known.keys():
        if known[name] is not None and known[name] not in LEGACY[name]:
            raise refused(f"`{name}` is not supported: use `tools` and `tool_choice`", name)
    return parse(schema, {name: known[name] for name in known.keys() - LEGACY.keys()})
