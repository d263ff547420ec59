"""Tools of a Responses request, which are flat, and the choice among them."""

import json
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, JsonValue

from deployments.ingress.schema import MOST_TOOLS, Items, Strict
from deployments.openai.fields import Identifier
from deployments.openai.responses_items import without_nulls
from deployments.openai.tools_schema import Function, Mode, Selection, functions_only

# What only its maker runs, or calls in a form of its own. Agents offer these to every model beside
# functions, and no model has to call any of them.
LEFT_OUT = (
    "custom",
    "image_generation",
    "local_shell",
    "namespace",
    "tool_search",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
)


def _callable_here(tools: object) -> object:
    if not isinstance(tools, list):
        return tools
    return [one for one in tools if not (isinstance(one, dict) and one.get("type") in LEFT_OUT)]


def _known_tool(tool: object) -> object:
    return without_nulls(functions_only(tool))


def _known_choice(choice: object) -> object:
    kind = choice.get("type") if isinstance(choice, dict) else None
    return choice if kind == "allowed_tools" else _known_tool(choice)


class FunctionTool(Function):
    """One that its client runs, called by the model while it waits."""

    type: Literal["function"]
    defer_loading: Literal[False] = False
    allowed_callers: Annotated[Items[Literal["direct"]], Field(min_length=1)] | None = None
    is_async: Literal[False] = Field(default=False, alias="async")
    output_schema: dict[str, JsonValue] | None = None

    @property
    def told(self) -> str:
        if self.output_schema is None:
            return super().told
        schema = json.dumps(self.output_schema, ensure_ascii=False)
        return f"{super().told}\nSchema of its output:\n{schema}".lstrip()


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
    list[Annotated[FunctionTool, BeforeValidator(_known_tool)]],
    Field(max_length=MOST_TOOLS),
    BeforeValidator(_callable_here),
]
ToolChoice = Annotated[
    Mode | Annotated[NamedChoice | AllowedChoice, Field(discriminator="type")],
    BeforeValidator(_known_choice),
]


class AdditionalTools(Strict):
    """More tools of this request, as an item; of two with one name the later counts."""

    type: Literal["additional_tools"]
    role: Literal["developer"]
    id: Identifier = ""
    tools: ToolList
