"""The content blocks of Anthropic's messages: text, thinking, tool calls and their results."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, JsonValue

from deployments.ingress.http.schema import IMAGE_TYPE, Items, Strict
from deployments.media.file_types import FileKind
from deployments.media.prompt_media import PromptMedia
from deployments.media.source import Source

OTHER_BLOCKS = ("container_upload", "browser_state")


OTHER_SOURCES = ("file",)


def _readable(block: object) -> object:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in OTHER_BLOCKS or kind in OTHER_SOURCES:
        raise ValueError(f"is of type {kind}, which is not supported by this server")
    return block


class EmptyOptions(Strict):
    """An object whose fields are all unsupported. Empty, it has no effect."""


class CacheControl(Strict):
    """A hint: every prefix is cached, for as long as there is room."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None
    scope: Literal["global", "org"] | None = None


class Block(Strict):
    cache_control: CacheControl | None = None


class TextBlock(Block):
    type: Literal["text"]
    text: str
    citations: Annotated[list[JsonValue], Field(max_length=0)] | None = None


PlainText = Annotated[TextBlock, BeforeValidator(_readable)]


def _not_cited(enabled: bool) -> bool:
    if enabled:
        raise ValueError("must be false: this server does not support citations")
    return enabled


class Citations(Strict):
    enabled: Annotated[bool, AfterValidator(_not_cited)] | None = None


class Base64Image(Strict):
    type: Literal["base64"]
    media_type: Annotated[str, Field(pattern=IMAGE_TYPE)]  # the file itself says which one it is
    data: Annotated[str, Field(min_length=1)]

    def read(self, kind: FileKind | None, path: str) -> Source:
        return Source(kind=kind, path=path, data=self.data)


class Base64Document(Strict):
    type: Literal["base64"]
    media_type: Literal["application/pdf"]
    data: Annotated[str, Field(min_length=1)]

    def read(self, kind: FileKind | None, path: str) -> Source:
        return Source(kind=kind, path=path, data=self.data)


class UrlSource(Strict):
    type: Literal["url"]
    url: Annotated[str, Field(min_length=1)]

    def read(self, kind: FileKind | None, path: str) -> Source:
        return Source(kind=kind, path=path, url=self.url)


class ImageBlock(Block):
    type: Literal["image"]
    source: Annotated[
        Annotated[Base64Image | UrlSource, Field(discriminator="type")], BeforeValidator(_readable)
    ]

    def media(self, path: str) -> Source | None:
        return self.source.read(FileKind.IMAGE, f"{path}.source")

    def text(self, media: PromptMedia) -> str:
        return media.text_of(self.source.read(FileKind.IMAGE, ""))


class PlainSource(Strict):
    type: Literal["text"]
    media_type: Literal["text/plain"]
    data: str

    @property
    def texts(self) -> list[str]:
        return [self.data]


class PartsSource(Strict):
    type: Literal["content"]
    content: str | Items[PlainText]

    @property
    def texts(self) -> list[str]:
        content = self.content
        return [content] if isinstance(content, str) else [part.text for part in content]


class DocumentBlock(Block):
    type: Literal["document"]
    source: Annotated[
        Annotated[
            PlainSource | PartsSource | Base64Document | UrlSource, Field(discriminator="type")
        ],
        BeforeValidator(_readable),
    ]
    title: str | None = None
    context: str | None = None
    citations: Citations | None = None

    def media(self, path: str) -> Source | None:
        if isinstance(self.source, PlainSource | PartsSource):
            return None
        return self.source.read(None, f"{path}.source")

    def text(self, media: PromptMedia) -> str:
        if isinstance(self.source, PlainSource | PartsSource):
            texts = self.source.texts
        else:
            texts = [media.text_of(self.source.read(None, ""))]
        return "\n".join(filter(None, (self.title, self.context, *texts)))


class SearchResultBlock(Block):
    type: Literal["search_result"]
    source: str
    title: str
    content: Items[PlainText]
    citations: Citations | None = None

    @property
    def text(self) -> str:
        return "\n".join((self.title, self.source, *(part.text for part in self.content)))


class ThinkingBlock(Strict):
    type: Literal["thinking"]
    thinking: str
    signature: str


class RedactedThinkingBlock(Strict):
    """Only the server that made it can read it: it is left out of the prompt."""

    type: Literal["redacted_thinking"]
    data: str


class AnthropicDirectCaller(Strict):
    type: Literal["direct"]


class ToolUseBlock(Block):
    type: Literal["tool_use"]
    id: Annotated[str, Field(min_length=1, max_length=256)]
    name: Annotated[str, Field(min_length=1, max_length=256)]
    input: dict[str, JsonValue]
    caller: AnthropicDirectCaller | None = None
    toolset_name: None = None


class ToolReferenceBlock(Block):
    """A tool that a search found: the model may call it from there on."""

    type: Literal["tool_reference"]
    tool_name: str

    @property
    def text(self) -> str:
        return self.tool_name


class ServerUseBlock(Strict):
    """A call of a tool that Anthropic ran. It is left out of the prompt, as its result is."""

    model_config = ConfigDict(extra="allow")
    type: Literal["server_tool_use", "mcp_tool_use"]
    id: str
    name: str


class ServerResultBlock(Strict):
    model_config = ConfigDict(extra="allow")
    type: Literal[
        "advisor_tool_result",
        "bash_code_execution_tool_result",
        "code_execution_tool_result",
        "mcp_tool_result",
        "text_editor_code_execution_tool_result",
        "tool_search_tool_result",
        "web_fetch_tool_result",
        "web_search_tool_result",
    ]
    tool_use_id: str
    content: JsonValue = None

    @property
    def found_tools(self) -> set[str]:
        """The names of tools that a search has found."""
        if self.type != "tool_search_tool_result" or not isinstance(self.content, dict):
            return set()
        references = self.content.get("tool_references")
        found = references if isinstance(references, list) else []
        return {
            str(reference.get("tool_name")) for reference in found if isinstance(reference, dict)
        }


class ServerNoteBlock(Strict):
    """A note that another server wrote for itself. It is left out of the prompt.

    It holds the models that the server tried, or the tools that it found.
    """

    model_config = ConfigDict(extra="allow")
    type: Literal["fallback", "mcp_tool_listing"]


ServerBlock = ServerUseBlock | ServerResultBlock | ServerNoteBlock


class AnswerTextBlock(TextBlock):
    """Text of the assistant. Its citations, which a search on a server makes, stay out of the
    prompt.
    """

    citations: list[JsonValue] | None = None


ResultBlock = Annotated[
    Annotated[
        TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock,
        Field(discriminator="type"),
    ],
    BeforeValidator(_readable),
]


class ToolResultBlock(Block):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Items[ResultBlock] | None = None
    is_error: bool | None = None
    toolset_name: None = None


UserBlock = Annotated[
    Annotated[
        TextBlock
        | ImageBlock
        | DocumentBlock
        | SearchResultBlock
        | ToolResultBlock
        | ServerResultBlock,
        Field(discriminator="type"),
    ],
    BeforeValidator(_readable),
]
AssistantBlock = Annotated[
    Annotated[
        AnswerTextBlock
        | ThinkingBlock
        | RedactedThinkingBlock
        | ToolUseBlock
        | ServerUseBlock
        | ServerResultBlock
        | ServerNoteBlock,
        Field(discriminator="type"),
    ],
    BeforeValidator(_readable),
]


class AnthropicUserMessage(Strict):
    role: Literal["user"]
    content: str | Annotated[Items[UserBlock], Field(min_length=1)]


class AnthropicAssistantMessage(Strict):
    """The content may be empty, as that of an answer may be."""

    role: Literal["assistant"]
    content: str | Items[AssistantBlock]


class SystemMessage(Strict):
    role: Literal["system"]
    content: str | Annotated[Items[PlainText], Field(min_length=1)]
    clear_at: Literal["never"] | None = None
    output_config: EmptyOptions | None = None


Message = Annotated[
    AnthropicUserMessage | AnthropicAssistantMessage | SystemMessage, Field(discriminator="role")
]
