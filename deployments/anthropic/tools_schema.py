"""The tools of a Messages request, which the client runs, and the choice among them."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, JsonValue

from deployments.anthropic.blocks import CacheControl
from deployments.ingress.http.schema import MAX_TOOLS, Items, Strict, Switch


def _custom(tool: object) -> object:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if isinstance(kind, str) and kind != "custom":
        raise ValueError(f"is of type {kind}, which is not supported by this server")
    return tool


def _of_an_object(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if schema.get("type") != "object":
        raise ValueError('must be the JSON Schema of an object, with `type`: "object"')
    return schema


class CustomTool(Strict):
    """`eager_input_streaming` has no effect: arguments are always streamed. With `defer_loading`
    the tool is in the prompt only once a result refers to it.
    """

    type: Literal["custom"] | None = None
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    description: str | None = None
    input_schema: Annotated[dict[str, JsonValue], AfterValidator(_of_an_object)]
    input_examples: Items[dict[str, JsonValue]] | None = None
    strict: Switch = None
    cache_control: CacheControl | None = None
    eager_input_streaming: Switch = None
    defer_loading: Switch = None
    allowed_callers: Items[Literal["direct"]] | None = None


ToolList = Annotated[
    list[Annotated[CustomTool, BeforeValidator(_custom)]], Field(max_length=MAX_TOOLS)
]


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
