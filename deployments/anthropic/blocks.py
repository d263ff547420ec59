"""What a message is made of: text, thoughts, calls of tools and their results."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue

from deployments.ingress.schema import Items, Strict

ONLY_ITS_MAKER = "is of type redacted_thinking, which nobody but its maker can read"
OTHER_BLOCKS = (
    "image",
    "document",
    "search_result",
    "container_upload",
    "browser_state",
    "server_tool_use",
    "mcp_tool_use",
    "mcp_tool_result",
    "web_search_tool_result",
    "web_fetch_tool_result",
    "code_execution_tool_result",
    "bash_code_execution_tool_result",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
)


def _readable(block: object) -> object:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind in OTHER_BLOCKS:
        raise ValueError(f"is of type {kind}, and the models of this server read text alone")
    if kind == "redacted_thinking":
        raise ValueError(ONLY_ITS_MAKER)
    return block


class CacheControl(Strict):
    """A hint: every prefix is cached here, for all and for as long as there is room."""

    type: Literal["ephemeral"]
    ttl: Literal["5m", "1h"] | None = None
    scope: Literal["global", "org"] | None = None


class Block(Strict):
    cache_control: CacheControl | None = None


class TextBlock(Block):
    type: Literal["text"]
    text: str
    citations: Annotated[list[JsonValue], Field(max_length=0)] | None = None


class ThinkingBlock(Strict):
    type: Literal["thinking"]
    thinking: str
    signature: str


class DirectCaller(Strict):
    type: Literal["direct"]


class ToolUseBlock(Block):
    type: Literal["tool_use"]
    id: Annotated[str, Field(min_length=1, max_length=256)]
    name: Annotated[str, Field(min_length=1, max_length=256)]
    input: dict[str, JsonValue]
    caller: DirectCaller | None = None
    toolset_name: None = None


class ToolReferenceBlock(Block):
    """What a search for tools has found: from there on the model may call it."""

    type: Literal["tool_reference"]
    tool_name: str

    @property
    def text(self) -> str:
        return self.tool_name


ResultBlock = Annotated[
    Annotated[TextBlock | ToolReferenceBlock, Field(discriminator="type")],
    BeforeValidator(_readable),
]


class ToolResultBlock(Block):
    type: Literal["tool_result"]
    tool_use_id: str
    content: str | Items[ResultBlock] | None = None
    is_error: bool | None = None
    toolset_name: None = None


SystemBlock = Annotated[TextBlock, BeforeValidator(_readable)]
UserBlock = Annotated[
    Annotated[TextBlock | ToolResultBlock, Field(discriminator="type")],
    BeforeValidator(_readable),
]
AssistantBlock = Annotated[
    Annotated[TextBlock | ThinkingBlock | ToolUseBlock, Field(discriminator="type")],
    BeforeValidator(_readable),
]


class UserMessage(Strict):
    role: Literal["user"]
    content: str | Annotated[Items[UserBlock], Field(min_length=1)]


class AssistantMessage(Strict):
    """An answer may have been empty, so its list may be."""

    role: Literal["assistant"]
    content: str | Items[AssistantBlock]


class SystemMessage(Strict):
    role: Literal["system"]
    content: str | Annotated[Items[SystemBlock], Field(min_length=1)]


Message = Annotated[UserMessage | AssistantMessage | SystemMessage, Field(discriminator="role")]
