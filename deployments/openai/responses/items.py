"""The items of a Responses conversation, as requests have them and as `input_items` lists them."""

import uuid
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, Protocol, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_validator,
)

from deployments.ingress.http.schema import NO_ZERO_BYTE, Items, Strict, without_nulls
from deployments.media.prompt_media import PromptMedia
from deployments.media.source import Source
from deployments.openai.fields.common import Citations, Identifier
from deployments.openai.fields.media import InputFile, InputImage, ResponsesAudio
from deployments.openai.responses.tools import ToolList, listed_tool

OTHER_PARTS = ("input_video", "computer_screenshot")
MEDIA_PARTS = ("input_image", "input_file", "input_audio")
Json = dict[str, object]


class HasText(Protocol):
    @property
    def text(self) -> str: ...


def _served(part: object) -> object:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in OTHER_PARTS:
        raise ValueError(f"is of type {kind}, which is not supported by this server")
    return without_nulls(part)


def typed(item: object) -> object:
    """The item with its `type`, which messages and references may leave out."""
    given = without_nulls(item)
    if not isinstance(given, dict) or "type" in given:
        return given
    return {**given, "type": "item_reference" if set(given) == {"id"} else "message"}


class InputText(Strict):
    """`prompt_cache_breakpoint` is a hint: every prefix is cached."""

    type: Literal["input_text"]
    text: str
    prompt_cache_breakpoint: dict[str, JsonValue] | None = None


class OutputText(Strict):
    type: Literal["output_text"]
    text: str
    annotations: Citations = Field(default_factory=list)
    logprobs: list[JsonValue] = Field(default_factory=list)
    parsed: JsonValue = None  # added by the SDK: `text` parsed


class RefusalText(Strict):
    type: Literal["refusal"]
    refusal: str

    @property
    def text(self) -> str:
        return self.refusal


class ReasoningText(Strict):
    type: Literal["reasoning_text"]
    text: str


class SummaryText(Strict):
    type: Literal["summary_text"]
    text: str


MediaPart = InputImage | InputFile | ResponsesAudio
TextPart = InputText | OutputText | RefusalText
Part = Annotated[
    Annotated[TextPart | MediaPart, Field(discriminator="type")], BeforeValidator(_served)
]
Result = Annotated[
    Annotated[InputText | InputImage | InputFile, Field(discriminator="type")],
    BeforeValidator(_served),
]
Status = Literal["in_progress", "completed", "incomplete"]


ItemId = Annotated[str, Field(max_length=512, pattern=NO_ZERO_BYTE)]
StoredId = Annotated[str, Field(min_length=1, max_length=512)]


class KeptItem(Strict):
    id: ItemId = ""
    status: Status = "completed"

    @abstractmethod
    def listed(self) -> Json:
        """The item as `input_items` lists it, with all fields."""

    def _head(self, prefix: str) -> Json:
        return {"id": self.id or new_id(prefix), "status": self.status}


class MessageItem(KeptItem):
    """`phase` is a label: it is stored, and not part of the prompt."""

    type: Literal["message"] = "message"
    role: Literal["user", "system", "developer", "assistant"]
    content: str | Items[Part]
    phase: Literal["commentary", "final_answer"] | None = None

    @field_validator("content")
    @classmethod
    def _says_something(cls, content: object, info: ValidationInfo) -> object:
        """Only an answer may be empty."""
        if content == [] and info.data.get("role") != "assistant":
            raise ValueError("must be a list of at least 1 item")
        return content

    @model_validator(mode="after")
    def _only_users_show(self) -> Self:
        for part in self.content if isinstance(self.content, list) else ():
            if part.type in MEDIA_PARTS and self.role != "user":
                raise ValueError(f"has {part.type}, which only messages of the user may have")
        return self

    def text(self, media: PromptMedia) -> str:
        return _text_of(self.content, media)

    def sources(self, path: str) -> list[Source]:
        return _sources(self.content, f"{path}.content")

    def listed(self) -> Json:
        parts = [self.content] if isinstance(self.content, str) else self.content
        content = [self._part(part) for part in parts]
        labels: Json = {} if self.phase is None else {"phase": self.phase}
        return {
            **self._head("msg"),
            "type": self.type,
            "role": self.role,
            "content": content,
            **labels,
        }

    def _part(self, part: str | TextPart | MediaPart) -> Json:
        if isinstance(part, MediaPart):
            return part.model_dump(exclude_none=True)
        if isinstance(part, RefusalText) and self.role == "assistant":
            return part.model_dump()
        text = part if isinstance(part, str) else part.text
        if self.role != "assistant":
            return {"type": "input_text", "text": text}
        given = part if isinstance(part, OutputText) else OutputText(type="output_text", text=text)
        return given.model_dump(exclude={"parsed"})


class ReasoningItem(KeptItem):
    """The whole thought is in `encrypted_content` if that is there, else in `content`, else in
    `summary`.
    """

    type: Literal["reasoning"]
    summary: Items[SummaryText] = Field(default_factory=list)
    content: Items[ReasoningText] = Field(default_factory=list)
    encrypted_content: str | None = None

    @property
    def text(self) -> str:
        return joined(self.content or self.summary)

    def listed(self) -> Json:
        parts = self.model_dump(include={"type", "summary", "content"})
        encrypted = self.model_dump(include={"encrypted_content"}, exclude_none=True)
        return {**self._head("rs"), **parts, **encrypted}

    def with_thought(self, thought: str) -> "ReasoningItem":
        """The item with what was encrypted in it."""
        content = [ReasoningText(type="reasoning_text", text=thought)]
        return self.model_copy(update={"content": content, "encrypted_content": None})


class ResponsesDirectCaller(Strict):
    type: Literal["direct"]


class CallingItem(KeptItem):
    """An item of a synchronous call by the model."""

    call_id: Identifier
    caller: ResponsesDirectCaller | None = None
    is_async: Literal[False] = Field(default=False, alias="async")


class NamedCallItem(CallingItem):
    name: Annotated[str, Field(min_length=1)]
    namespace: Identifier | None = None

    def listed(self) -> Json:
        names = {"type", "call_id", "name", "namespace", "arguments", "input"}
        prefix = "fc" if isinstance(self, CallItem) else "ctc"
        return {**self._head(prefix), **self.model_dump(include=names, exclude_none=True)}


class CallItem(NamedCallItem):
    type: Literal["function_call"]
    arguments: str  # JSON
    parsed_arguments: JsonValue = None  # added by the SDK: `arguments` parsed


class CustomCallItem(NamedCallItem):
    type: Literal["custom_tool_call"]
    input: str


class SearchCallItem(KeptItem):
    """A search for tools. Without `execution` OpenAI ran it, and its prompt does not have it."""

    type: Literal["tool_search_call"]
    call_id: Identifier | None = None
    execution: Literal["server", "client"] = "server"
    arguments: dict[str, JsonValue]

    def listed(self) -> Json:
        names = {"type", "call_id", "execution", "arguments"}
        return {**self._head("tsc"), **self.model_dump(include=names, exclude_none=True)}


class SearchOutputItem(KeptItem):
    """Tools that a search has found, for this request and those that continue it."""

    type: Literal["tool_search_output"]
    call_id: Identifier | None = None
    execution: Literal["server", "client"] = "server"
    tools: ToolList

    def listed(self) -> Json:
        head = {**self._head("tso"), "type": self.type, "execution": self.execution}
        called: Json = {} if self.call_id is None else {"call_id": self.call_id}
        return {**head, **called, "tools": [listed_tool(tool) for tool in self.tools]}


class ResultItem(CallingItem):
    """`name` is the tool's, as in the call."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    output: str | Items[Result]
    name: Identifier | None = None
    namespace: Identifier | None = None

    def text(self, media: PromptMedia) -> str:
        return _text_of(self.output, media)

    def sources(self, path: str) -> list[Source]:
        found = _sources(self.output, f"{path}.output")
        return [replace(source, from_tool=True) for source in found]

    def listed(self) -> Json:
        head = {**self._head("fco"), "type": self.type, "call_id": self.call_id}
        if isinstance(self.output, str):
            return {**head, "output": self.output}
        parts = [part.model_dump(exclude_none=True) for part in self.output]
        return {**head, "output": parts}


class ToolsItem(Strict):
    """More tools, for this request and those that continue it."""

    type: Literal["additional_tools"]
    role: Literal["developer"]
    id: ItemId = ""
    tools: ToolList

    def listed(self) -> Json:
        tools = [listed_tool(tool) for tool in self.tools]
        head = {"id": self.id or new_id("tools"), "type": self.type, "role": self.role}
        return {**head, "tools": tools}


class HostedItem(Strict):
    """An item that another server has run, or keeps to itself. The prompt leaves it out."""

    model_config = ConfigDict(extra="allow")
    id: ItemId = ""
    type: Literal[
        "agent_message",
        "apply_patch_call",
        "apply_patch_call_output",
        "code_interpreter_call",
        "compaction",
        "compaction_summary",
        "context_compaction",
        "file_search_call",
        "image_generation_call",
        "local_shell_call",
        "local_shell_call_output",
        "mcp_approval_request",
        "mcp_approval_response",
        "mcp_call",
        "mcp_list_tools",
        "program",
        "program_output",
        "shell_call",
        "shell_call_output",
        "web_search_call",
    ]

    @property
    def call_id(self) -> object:
        return (self.model_extra or {}).get("call_id")

    def listed(self) -> Json:
        return {**self.model_dump(), "id": self.id or new_id("item")}


class ReferenceItem(Strict):
    type: Literal["item_reference"] = "item_reference"
    id: StoredId


Item = (
    MessageItem
    | ReasoningItem
    | CallItem
    | CustomCallItem
    | SearchCallItem
    | SearchOutputItem
    | ResultItem
    | ToolsItem
    | HostedItem
)
KEPT: TypeAdapter[Item] = TypeAdapter(Annotated[Item, Field(discriminator="type")])


def _text_of(content: str | Sequence[TextPart | MediaPart], media: PromptMedia) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        media.text_of(part.source("")) if isinstance(part, MediaPart) else part.text
        for part in content
    )


def _sources(content: str | Sequence[TextPart | MediaPart], path: str) -> list[Source]:
    parts = enumerate(content) if not isinstance(content, str) else ()
    return [part.source(f"{path}[{index}]") for index, part in parts if isinstance(part, MediaPart)]


def joined(parts: Sequence[HasText]) -> str:
    return "\n".join(part.text for part in parts)


def new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex}"
