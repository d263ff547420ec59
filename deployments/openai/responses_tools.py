"""Tools of a Responses request, which are flat, and the choice among them."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from deployments.ingress.schema import MOST_TOOLS, Strict
from deployments.openai.responses_items import without_nulls
from deployments.openai.tools_schema import Function, Mode, Selection, functions_only


def _known_tool(tool: object) -> object:
    return without_nulls(functions_only(tool))


def _known_choice(choice: object) -> object:
    kind = choice.get("type") if isinstance(choice, dict) else None
    return choice if kind == "allowed_tools" else _known_tool(choice)


class FunctionTool(Function):
    type: Literal["function"]


class NamedChoice(Strict):
    type: Literal["function"]
    name: str

    @property
    def selection(self) -> Selection:
        return Selection("required", (self.name,), "tool_choice.name", one=True)


class AllowedChoice(Strict):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[
        list[Annotated[NamedChoice, BeforeValidator(_known_tool)]],
        Field(min_length=1, max_length=MOST_TOOLS),
    ]

    @property
    def selection(self) -> Selection:
        return Selection(self.mode, tuple(one.name for one in self.tools), "tool_choice.tools")


ToolList = Annotated[
    list[Annotated[FunctionTool, BeforeValidator(_known_tool)]], Field(max_length=MOST_TOOLS)
]
ToolChoice = Annotated[
    Mode | Annotated[NamedChoice | AllowedChoice, Field(discriminator="type")],
    BeforeValidator(_known_choice),
]
