"""The tools of a request and the choice among them, resolved for a conversation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Protocol

from pydantic import BeforeValidator, Field, JsonValue

from deployments.ingress.http.schema import MAX_TOOLS, NAME, Strict
from deployments.text.tool import Tool
from deployments.wire import refused

FunctionName = Annotated[str, Field(pattern=NAME)]
Mode = Literal["none", "auto", "required"]


def functions_only(tool: object) -> object:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if isinstance(kind, str) and kind != "function":
        raise ValueError(f"is of type {kind[:40]!r}, which is not supported: use function")
    return tool


class Function(Strict):
    """Calls of a `strict` function always match its parameters."""

    name: FunctionName
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    strict: bool | None = None

    @property
    def prompt_description(self) -> str:
        """The description that the prompt shows."""
        return self.description or ""


class FunctionTool(Strict):
    type: Literal["function"]
    function: Function


class FunctionNamed(Strict):
    name: str


class NamedChoice(Strict):
    type: Literal["function"]
    function: FunctionNamed

    @property
    def selection(self) -> "Selection":
        return Selection("required", (self.function.name,), "tool_choice.function.name", one=True)


class AllowedTools(Strict):
    mode: Literal["auto", "required"]
    tools: Annotated[
        list[Annotated[NamedChoice, BeforeValidator(functions_only)]],
        Field(min_length=1, max_length=MAX_TOOLS),
    ]


class AllowedChoice(Strict):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools

    @property
    def selection(self) -> "Selection":
        names = tuple(tool.function.name for tool in self.allowed_tools.tools)
        return Selection(self.allowed_tools.mode, names, "tool_choice.allowed_tools.tools")


def _known_choice(choice: object) -> object:
    if isinstance(choice, dict) and choice.get("type") == "custom":
        raise ValueError("is of type custom, which is not supported: use function or allowed_tools")
    return choice


ToolList = Annotated[
    list[Annotated[FunctionTool, BeforeValidator(functions_only)]], Field(max_length=MAX_TOOLS)
]
ToolChoice = Annotated[
    Mode | Annotated[NamedChoice | AllowedChoice, Field(discriminator="type")],
    BeforeValidator(_known_choice),
]


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice among some of the tools, named in the field `param`. `one` allows a single call."""

    mode: Mode
    names: tuple[str, ...]
    param: str
    one: bool = False


class Selects(Protocol):
    @property
    def selection(self) -> Selection: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTools:
    """The tools of a request as a conversation takes them. `one` allows a single call."""

    tools: tuple[Tool, ...]
    choice: Mode
    callable: frozenset[str] = frozenset()
    one: bool = False


def resolve_tools(
    functions: Sequence[tuple[str, Function]], choice: Mode | Selects | None
) -> ResolvedTools:
    """Each function comes with its path. Raises Refused for unknown names, duplicate names and too
    many tools.
    """
    if len(functions) > MAX_TOOLS:
        raise refused(f"`tools` must have at most {MAX_TOOLS} tools", "tools")
    tools = tuple(_tool(path, one) for path, one in functions)
    names = _names(functions)
    if choice is None:
        return ResolvedTools(tools=tools, choice="auto" if tools else "none")
    if not isinstance(choice, str):
        selection = choice.selection
        return ResolvedTools(
            tools=tools,
            choice=selection.mode,
            callable=_selected(names, selection),
            one=selection.one,
        )
    if choice == "required" and not tools:
        raise refused('`tool_choice` "required" requires `tools`', "tool_choice")
    return ResolvedTools(tools=tools, choice=choice)


def _tool(path: str, function: Function) -> Tool:
    parameters = function.parameters or {"type": "object", "properties": {}}
    param = f"{path}.parameters"
    if parameters.get("type", "object") != "object":
        raise refused(f"`{param}` must be a JSON Schema of type object", param)
    schema = {"type": "object", **parameters}
    return Tool(function.name, function.prompt_description, schema, bool(function.strict), param)


def _names(functions: Sequence[tuple[str, Function]]) -> frozenset[str]:
    names: set[str] = set()
    for path, function in functions:
        if function.name in names:
            param = f"{path}.name"
            raise refused(f"`{param}`: another tool is named {function.name!r}", param)
        names.add(function.name)
    return frozenset(names)


def _selected(names: frozenset[str], selection: Selection) -> frozenset[str]:
    missing = frozenset(selection.names) - names
    if missing:
        message = f"`{selection.param}` names {min(missing)[:64]!r}, which is not in `tools`"
        raise refused(message, selection.param)
    return frozenset(selection.names)
