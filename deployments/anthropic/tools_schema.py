"""The tools of a Messages request, and the choice among those that the client runs."""

import re
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
)

from deployments.anthropic.blocks import CacheControl
from deployments.ingress.http.schema import LONG_NAME, MAX_TOOLS, Items, Strict, Switch

# The types of tools that only Anthropic runs, with their versions.
SERVER_TOOL = re.compile(
    r"(advisor|code_execution|tool_search_tool_(bm25|regex)|web_fetch|web_search)(_\d{8})?"
)
TOOL_SEARCH = "tool_search_tool_"
CUSTOM, SERVER = "run by the client", "run by Anthropic"


def _runner(tool: object) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    return SERVER if isinstance(kind, str) and SERVER_TOOL.fullmatch(kind) else CUSTOM


def _supported(tool: object) -> object:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if isinstance(kind, str) and kind != "custom" and _runner(tool) == CUSTOM:
        raise ValueError(f"is of type {kind[:40]!r}, which is not supported by this server")
    return tool


def _of_an_object(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if schema.get("type") != "object":
        raise ValueError('must be the JSON Schema of an object, with `type`: "object"')
    return schema


class AnthropicCustomTool(Strict):
    """`eager_input_streaming` has no effect: arguments are always streamed. With `defer_loading`
    the tool is in the prompt only once a result refers to it, or from the start where Anthropic's
    own search would have to find it.
    """

    type: Literal["custom"] | None = None
    name: Annotated[str, Field(pattern=LONG_NAME)]
    description: str | None = None
    input_schema: Annotated[dict[str, JsonValue], AfterValidator(_of_an_object)]
    input_examples: Items[dict[str, JsonValue]] | None = None
    strict: Switch = None
    cache_control: CacheControl | None = None
    eager_input_streaming: Switch = None
    defer_loading: Switch = None
    allowed_callers: Items[Literal["direct"]] | None = None


class ServerTool(Strict):
    """It is left out of the prompt. Agents offer such tools to every model."""

    model_config = ConfigDict(extra="allow")
    type: str
    name: str

    @property
    def is_search(self) -> bool:
        """Whether it finds tools with `defer_loading`."""
        return self.type.startswith(TOOL_SEARCH)


Offered = Annotated[
    Annotated[AnthropicCustomTool, Tag(CUSTOM)] | Annotated[ServerTool, Tag(SERVER)],
    Discriminator(_runner),
    BeforeValidator(_supported),
]
ToolList = Annotated[list[Offered], Field(max_length=MAX_TOOLS)]


class AutoChoice(Strict):
    type: Literal["auto"]
    disable_parallel_tool_use: Switch = None


class AnyChoice(Strict):
    type: Literal["any"]
    disable_parallel_tool_use: Switch = None


class AnthropicNamedChoice(Strict):
    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: Switch = None


class NoChoice(Strict):
    type: Literal["none"]
    disable_parallel_tool_use: Switch = None


ToolChoice = Annotated[
    AutoChoice | AnyChoice | AnthropicNamedChoice | NoChoice, Field(discriminator="type")
]
