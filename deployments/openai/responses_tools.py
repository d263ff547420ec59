"""Tools of a Responses request, which are flat, and the choice among them."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue

from deployments.ingress.errors import refused
from deployments.openai.fields import Strict
from deployments.openai.responses_items import without_nulls
from deployments.openai.tools_schema import MOST_TOOLS, Chosen, FunctionName
from deployments.text.dialects.dialect import Tool


def _functions_only(tool: object) -> object:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if isinstance(kind, str) and kind != "function":
        message = f"is of type {kind[:40]}, which is not supported by this server: only function is"
        raise ValueError(message)
    return without_nulls(tool)


def _known_choice(choice: object) -> object:
    kind = choice.get("type") if isinstance(choice, dict) else None
    return choice if kind == "allowed_tools" else _functions_only(choice)


class FunctionTool(Strict):
    """`strict` asks for arguments that fit the schema; every call that is forced has them."""

    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class NamedChoice(Strict):
    type: Literal["function"]
    name: str


class AllowedChoice(Strict):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[
        list[Annotated[NamedChoice, BeforeValidator(_functions_only)]], Field(min_length=1)
    ]


ToolList = Annotated[
    list[Annotated[FunctionTool, BeforeValidator(_functions_only)]], Field(max_length=MOST_TOOLS)
]
ToolChoice = Annotated[
    Literal["none", "auto", "required"]
    | Annotated[NamedChoice | AllowedChoice, Field(discriminator="type")],
    BeforeValidator(_known_choice),
]


def chosen(tools: Sequence[FunctionTool], choice: ToolChoice | None) -> Chosen:
    """Raises Refused for what names no tool, or one name twice."""
    known = tuple(_tool(place, tool) for place, tool in enumerate(tools))
    names = _names(tools)
    match choice:
        case None:
            return Chosen(tools=known, choice="auto" if known else "none")
        case NamedChoice(name=name):
            wanted = _among(names, [name], "tool_choice.name")
            return Chosen(tools=known, choice="required", callable=wanted, one=True)
        case AllowedChoice(mode=mode, tools=allowed):
            wanted = _among(names, [one.name for one in allowed], "tool_choice.tools")
            return Chosen(tools=known, choice=mode, callable=wanted)
    if choice == "required" and not known:
        raise refused('`tool_choice` "required" needs `tools`', "tool_choice")
    return Chosen(tools=known, choice=choice)


def _tool(place: int, tool: FunctionTool) -> Tool:
    parameters = tool.parameters or {"type": "object", "properties": {}}
    if parameters.get("type", "object") != "object":
        param = f"tools[{place}].parameters"
        raise refused(f"`{param}` must be a JSON Schema of type object", param)
    return Tool(tool.name, tool.description or "", {"type": "object", **parameters})


def _names(tools: Sequence[FunctionTool]) -> frozenset[str]:
    names: set[str] = set()
    for place, tool in enumerate(tools):
        if tool.name in names:
            param = f"tools[{place}].name"
            raise refused(f"`{param}`: there is another tool named {tool.name!r}", param)
        names.add(tool.name)
    return frozenset(names)


def _among(names: frozenset[str], wanted: Sequence[str], param: str) -> frozenset[str]:
    missing = frozenset(wanted) - names
    if missing:
        raise refused(f"`{param}` has {min(missing)[:64]!r}, which is not among `tools`", param)
    return frozenset(wanted)
