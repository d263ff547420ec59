"""The tools of a Responses request and the choice among them."""

import json
from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    model_validator,
)

from deployments.ingress.http.schema import MAX_TOOLS, Items, Strict, without_nulls
from deployments.openai.fields.tools import Function, Mode, Selection, functions_only
from deployments.wire import refused

# Tools that OpenAI runs, or with calls of another form. Agents offer these to every model beside
# functions. They are left out of the prompt.
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
CALLED, PASSED = "called here", "passed over"


def _known_tool(tool: object) -> object:
    return tool if _fate(tool) == PASSED else without_nulls(functions_only(tool))


def _known_choice(choice: object) -> object:
    kind = choice.get("type") if isinstance(choice, dict) else None
    return choice if kind == "allowed_tools" else without_nulls(functions_only(choice))


def _fate(tool: object) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else getattr(tool, "type", None)
    return PASSED if kind in LEFT_OUT else CALLED


class LeftOut(Strict):
    """A tool that is left out of the prompt."""

    model_config = ConfigDict(extra="allow")
    type: str

    def listed(self) -> dict[str, object]:
        return self.model_dump()


class ResponsesFunctionTool(Function):
    """A function that the client runs."""

    type: Literal["function"]
    defer_loading: Literal[False] = False
    allowed_callers: Annotated[Items[Literal["direct"]], Field(min_length=1)] | None = None
    is_async: Literal[False] = Field(default=False, alias="async")
    output_schema: dict[str, JsonValue] | None = None

    @property
    def prompt_description(self) -> str:
        if self.output_schema is None:
            return super().prompt_description
        schema = json.dumps(self.output_schema, ensure_ascii=False)
        return f"{super().prompt_description}\nSchema of its output:\n{schema}".lstrip()

    def listed(self) -> dict[str, object]:
        """The tool as responses show it, with all fields."""
        fields = self.model_dump(by_alias=True, exclude_none=True)
        return {"parameters": None, **fields, "strict": bool(self.strict)}


FunctionWithPath = tuple[str, ResponsesFunctionTool]  # with its path


class ResponsesNamedChoice(Strict):
    type: Literal["function"]
    name: str

    @property
    def selection(self) -> Selection:
        return Selection("required", (self.name,), "tool_choice.name", one=True)


class ResponsesAllowedChoice(Strict):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[
        list[
            Annotated[
                Annotated[ResponsesNamedChoice, Tag(CALLED)] | Annotated[LeftOut, Tag(PASSED)],
                Discriminator(_fate),
                BeforeValidator(_known_tool),
            ]
        ],
        Field(min_length=1, max_length=MAX_TOOLS),
    ]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.tools if isinstance(one, ResponsesNamedChoice))

    @property
    def selection(self) -> Selection:
        return Selection(self.mode if self.names else "none", self.names, "tool_choice.tools")

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        if self.mode == "required" and not self.names:
            message = "`tool_choice.tools` must have a function: this server calls no other tools"
            raise refused(message, "tool_choice.tools")
        return self


Offered = Annotated[
    Annotated[ResponsesFunctionTool, Tag(CALLED)] | Annotated[LeftOut, Tag(PASSED)],
    Discriminator(_fate),
    BeforeValidator(_known_tool),
]
ToolList = Annotated[list[Offered], Field(max_length=MAX_TOOLS)]
ToolChoice = Annotated[
    Mode | Annotated[ResponsesNamedChoice | ResponsesAllowedChoice, Field(discriminator="type")],
    BeforeValidator(_known_choice),
]
