"""Tools of a chat request and the choice among them, as a conversation takes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue

from deployments.ingress.errors import refused
from deployments.openai.fields import Strict
from deployments.text.dialects.dialect import Tool

MOST_TOOLS = 512
FunctionName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


def _functions_only(tool: object) -> object:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if isinstance(kind, str) and kind != "function":
        raise ValueError(f"is of type {kind[:40]}, which is not supported: only function is")
    return tool


class Function(Strict):
    """`strict` asks for arguments that fit the schema; every call that is forced has them."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None


class FunctionTool(Strict):
    type: Literal["function"]
    function: Function


class FunctionNamed(Strict):
    name: str


class NamedChoice(Strict):
    type: Literal["function"]
    function: FunctionNamed


class AllowedTools(Strict):
    mode: Literal["auto", "required"]
    tools: Annotated[
        list[Annotated[NamedChoice, BeforeValidator(_functions_only)]], Field(min_length=1)
    ]


class AllowedChoice(Strict):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


def _known_choice(choice: object) -> object:
    if isinstance(choice, dict) and choice.get("type") == "custom":
        raise ValueError("is of type custom, which is not supported")
    return choice


ToolList = Annotated[
    list[Annotated[FunctionTool, BeforeValidator(_functions_only)]], Field(max_length=MOST_TOOLS)
]
ToolChoice = Annotated[
    Literal["none", "auto", "required"]
    | Annotated[NamedChoice | AllowedChoice, Field(discriminator="type")],
    BeforeValidator(_known_choice),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What a conversation must know of a request's tools. `one` allows a single call."""

    tools: tuple[Tool, ...]
    choice: Literal["none", "auto", "required"]
    callable: frozenset[str] = frozenset()
    one: bool = False


def chosen(tools: Sequence[FunctionTool], choice: ToolChoice | None) -> Chosen:
    """Raises Refused for what names no tool, or one name twice."""
    known = tuple(_tool(place, tool.function) for place, tool in enumerate(tools))
    _check_names(known)
    match choice:
        case None:
            return Chosen(tools=known, choice="auto" if known else "none")
        case NamedChoice():
            names = _named([choice], known)
            return Chosen(tools=known, choice="required", callable=names, one=True)
        case AllowedChoice(allowed_tools=allowed):
            names = _named(allowed.tools, known)
            return Chosen(tools=known, choice=allowed.mode, callable=names)
    if choice == "required" and not known:
        raise refused('`tool_choice` "required" needs `tools`', "tool_choice")
    return Chosen(tools=known, choice=choice)


def _tool(place: int, function: Function) -> Tool:
    parameters = function.parameters or {"type": "object", "properties": {}}
    if parameters.get("type", "object") != "object":
        param = f"tools[{place}].function.parameters"
        raise refused(f"`{param}` must be a JSON Schema of type object", param)
    return Tool(function.name, function.description or "", {"type": "object", **parameters})


def _check_names(tools: Sequence[Tool]) -> None:
    seen: set[str] = set()
    for place, tool in enumerate(tools):
        if tool.name in seen:
            param = f"tools[{place}].function.name"
            raise refused(f"`{param}`: there is another tool named {tool.name!r}", param)
        seen.add(tool.name)


def _named(choices: Sequence[NamedChoice], tools: Sequence[Tool]) -> frozenset[str]:
    names = frozenset(choice.function.name for choice in choices)
    missing = names - {tool.name for tool in tools}
    if missing:
        message = f"`tool_choice` names {min(missing)[:64]!r}, which is not among `tools`"
        raise refused(message, "tool_choice")
    return names
