"""The body of POST /v1/chat/completions: text conversations, every field honoured or refused."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from deployments.ingress.errors import refused
from deployments.ingress.validation import parse, refuse_unsupported
from deployments.openai.fields import GenerationFields, Strict, Switch

# Known but not served: null and the values listed ask for what is done anyway.
NEUTRAL: dict[str, tuple[object, ...]] = {
    "audio": (),
    "function_call": ("none", "auto"),
    "functions": ([],),
    "modalities": (["text"],),
    "moderation": (),
    "nvext": (),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "prompt_cache_options": (),
    "prompt_cache_retention": ("in_memory",),
    "reasoning_effort": (),
    "response_format": ({"type": "text"},),
    "store": (False,),
    "structured_outputs": (),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "verbosity": (),
    "web_search_options": (),
}
OTHER_PARTS = ("image_url", "input_audio", "file", "video_url", "audio_url")


def _text_only(part: object) -> object:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in OTHER_PARTS:
        raise ValueError(f"is of type {kind}, which is not supported by this server")
    return part


class TextPart(Strict):
    type: Literal["text"]
    text: str


class RefusalPart(Strict):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


SpokenPart = Annotated[TextPart | RefusalPart, Field(discriminator="type")]
Parts = Annotated[list[Annotated[TextPart, BeforeValidator(_text_only)]], Field(min_length=1)]


class Instruction(Strict):
    role: Literal["developer", "system"]
    content: str | Parts
    name: str | None = None


class UserMessage(Strict):
    role: Literal["user"]
    content: str | Parts
    name: str | None = None


class FunctionCall(Strict):
    name: str
    arguments: str  # JSON


class ToolCall(Strict):
    id: str
    type: Literal["function"]
    function: FunctionCall


class AssistantMessage(Strict):
    """What the SDKs print of an answer may come back: its empty fields are accepted as such."""

    role: Literal["assistant"]
    content: str | list[SpokenPart] | None = None
    name: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ToolCall] | None = None
    annotations: Annotated[list[JsonValue], Field(max_length=0)] | None = None
    audio: None = None
    function_call: None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.content is None and self.refusal is None and not self.tool_calls:
            raise ValueError("needs `content` or `tool_calls`")
        return self


class ToolMessage(Strict):
    role: Literal["tool"]
    content: str | Parts
    tool_call_id: str
    name: str | None = None


Message = Annotated[
    Instruction | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


class ChatRequest(GenerationFields):
    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: Switch = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    add_generation_prompt: Switch = None
    continue_final_message: Switch = None
    chat_template_kwargs: dict[str, JsonValue] | None = None

    @property
    def token_limit(self) -> int | None:
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens
        return self.max_tokens

    @model_validator(mode="after")
    def _chat_fields_agree(self) -> Self:
        if self.top_logprobs is not None and not self.logprobs:
            raise refused("`top_logprobs` needs `logprobs`: true", "top_logprobs")
        if self.continue_final_message and self.add_generation_prompt:
            message = "`continue_final_message` excludes `add_generation_prompt`: true"
            raise refused(message, "continue_final_message")
        return self


def parse_chat(body: object) -> ChatRequest:
    return parse(ChatRequest, refuse_unsupported(body, NEUTRAL))
