"""The tools of a request and the choice among them, resolved for a conversation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue

from deployments.contract.errors import refused
from deployments.ingress.http.schema import MAX_TOOLS, NAME, Strict
from deployments.openai.fields.custom_tools import Grammar, TextInput, text_tool
from deployments.text.tool import Tool

FunctionName = Annotated[str, Field(pattern=NAME)]
Mode = Literal["none", "auto", "required"]


def _known_tool(tool: object) -> object:
    kind = tool.get("type") if isinstance(tool, dict) else None
    if isinstance(kind, str) and kind not in ("function", "custom"):
        said = f"is of type {kind[:40]!r}, which is not supported: use function or custom"
        raise ValueError(said)
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


class GrammarOfInput(Strict):
    type: Literal["grammar"]
    grammar: Grammar


class Custom(Strict):
    """A tool that takes a text."""

    name: FunctionName
    description: str | None = None
    format: Annotated[TextInput | GrammarOfInput, Field(discriminator="type")] | None = None

    @property
    def grammar(self) -> Grammar | None:
        return self.format.grammar if isinstance(self.format, GrammarOfInput) else None


class CustomTool(Strict):
    type: Literal["custom"]
    custom: Custom


class FunctionNamed(Strict):
    name: str


class NamedChoice(Strict):
    type: Literal["function"]
    function: FunctionNamed

    @property
    def selection(self) -> "Selection":
        return Selection("required", (self.name,), "tool_choice.function.name", one=True)

    @property
    def name(self) -> str:
        return self.function.name


class NamedCustomChoice(Strict):
    type: Literal["custom"]
    custom: FunctionNamed

    @property
    def selection(self) -> "Selection":
        return Selection("required", (self.name,), "tool_choice.custom.name", one=True)

    @property
    def name(self) -> str:
        return self.custom.name


class AllowedTools(Strict):
    mode: Literal["auto", "required"]
    tools: Annotated[
        list[
            Annotated[
                Annotated[NamedChoice | NamedCustomChoice, Field(discriminator="type")],
                BeforeValidator(_known_tool),
            ]
        ],
        Field(min_length=1, max_length=MAX_TOOLS),
    ]


class AllowedChoice(Strict):
    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools

    @property
    def selection(self) -> "Selection":
        names = tuple(tool.name for tool in self.allowed_tools.tools)
        return Selection(self.allowed_tools.mode, names, "tool_choice.allowed_tools.tools")


ToolList = Annotated[
    list[
        Annotated[
            Annotated[FunctionTool | CustomTool, Field(discriminator="type")],
            BeforeValidator(_known_tool),
        ]
    ],
    Field(max_length=MAX_TOOLS),
]
ToolChoice = (
    Mode | Annotated[NamedChoice | NamedCustomChoice | AllowedChoice, Field(discriminator="type")]
)


@dataclass(frozen=True, slots=True)
class Selection:
    """A choice among some of the tools, named in the field `param`. `one` allows a single call."""

    mode: Mode
    names: tuple[str, ...]
    param: str
    one: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTools:
    """The tools of a request as a conversation takes them. `one` allows a single call."""

    tools: tuple[Tool, ...]
    choice: Mode
    callable: frozenset[str] = frozenset()
    one: bool = False


def resolve_tools(
    given: Sequence[tuple[str, Tool]], choice: Mode | Selection | None
) -> ResolvedTools:
    """Each tool comes with its path. Raises Refused for unknown names, duplicate names and too
    many tools.
    """
    check_number(len(given))
    tools = tuple(tool for _, tool in given)
    names = _names(given)
    if choice is None:
        return ResolvedTools(tools=tools, choice="auto" if tools else "none")
    if isinstance(choice, Selection):
        return ResolvedTools(
            tools=tools, choice=choice.mode, callable=_selected(names, choice), one=choice.one
        )
    if choice == "required" and not tools:
        raise refused('`tool_choice` "required" requires `tools`', "tool_choice")
    return ResolvedTools(tools=tools, choice=choice)


def check_number(n_tools: int) -> None:
    """Raises Refused for more tools than a request may have."""
    if n_tools > MAX_TOOLS:
        raise refused(f"`tools` must have at most {MAX_TOOLS} tools", "tools")


def function_tool(path: str, function: Function) -> Tool:
    """Raises Refused."""
    parameters = function.parameters or {"type": "object", "properties": {}}
    param = f"{path}.parameters"
    if parameters.get("type", "object") != "object":
        raise refused(f"`{param}` must be a JSON Schema of type object", param)
    schema = {"type": "object", **parameters}
    return Tool(function.name, function.prompt_description, schema, bool(function.strict), param)


def custom_tool(path: str, custom: Custom) -> Tool:
    """Raises Refused."""
    param = f"{path}.format.grammar.definition"
    return text_tool(custom.name, custom.description, custom.grammar, path, param)


def _names(tools: Sequence[tuple[str, Tool]]) -> frozenset[str]:
    names: set[str] = set()
    for path, tool in tools:
        if tool.name in names:
            param = f"{path}.name"
            raise refused(f"`{param}`: another tool is named {tool.name!r}", param)
        names.add(tool.name)
    return frozenset(names)


def _selected(names: frozenset[str], selection: Selection) -> frozenset[str]:
    missing = frozenset(selection.names) - names
    if missing:
        message = f"`{selection.param}` names {min(missing)[:64]!r}, which is not in `tools`"
        raise refused(message, selection.param)
    return frozenset(selection.names)
