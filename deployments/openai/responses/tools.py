"""The tools of a Responses request and the choice among them, as the request has them."""

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

from deployments.contract.errors import refused
from deployments.ingress.http.schema import (
    LONG_NAME,
    MAX_TOOLS,
    Items,
    Strict,
    without_nulls,
)
from deployments.openai.fields.custom_tools import Grammar, TextInput
from deployments.openai.fields.tools import Function, FunctionName, Mode

# Tools that OpenAI runs. Agents offer these to every model beside those that they run themselves.
# They are left out of the prompt.
LEFT_OUT = (
    "image_generation",
    "local_shell",
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
)
CALLED = ("function", "custom", "namespace")
SEARCH = "tool_search"
FUNCTION, PASSED = "called here", "passed over"  # tags that are no field's name


def _fate(tool: object) -> str:
    """Tag of the class that reads it. A search for tools is the client's or OpenAI's."""
    kind, runner = _field(tool, "type"), _field(tool, "execution")
    if kind in LEFT_OUT or (kind == SEARCH and runner != "client"):
        return PASSED
    return str(kind) if kind in (*CALLED[1:], SEARCH) else FUNCTION


def _field(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, dict) else getattr(value, name, None)


def _known(tool: object) -> object:
    kind = _field(tool, "type")
    served = kind in (*CALLED, SEARCH, *LEFT_OUT)
    if isinstance(tool, dict) and isinstance(kind, str) and not served:
        raise ValueError(f"is of type {kind[:40]!r}, which is not supported: use function")
    return tool if _fate(tool) == PASSED else without_nulls(tool)


class LeftOut(Strict):
    """A tool that is left out of the prompt."""

    model_config = ConfigDict(extra="allow")
    type: str

    def listed(self) -> dict[str, object]:
        return self.model_dump()


class ClientTool(Strict):
    """`defer_loading` leaves it to the client's search to find it, where one is offered."""

    defer_loading: bool = False
    allowed_callers: Annotated[Items[Literal["direct"]], Field(min_length=1)] | None = None
    is_async: Literal[False] = Field(default=False, alias="async")


class ResponsesFunctionTool(ClientTool, Function):
    """A function that the client runs."""

    type: Literal["function"]
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


class GrammarInput(Grammar):
    type: Literal["grammar"]


Input = Annotated[TextInput | GrammarInput, Field(discriminator="type")]


class ResponsesCustomTool(ClientTool):
    """A tool that takes a text."""

    type: Literal["custom"]
    name: FunctionName
    description: str | None = None
    format: Annotated[Input | None, BeforeValidator(without_nulls)] = None

    @property
    def grammar(self) -> Grammar | None:
        return self.format if isinstance(self.format, GrammarInput) else None

    def listed(self) -> dict[str, object]:
        return self.model_dump(by_alias=True, exclude_none=True)


def _member(tool: object) -> object:
    kind = _field(tool, "type")
    if isinstance(tool, dict) and isinstance(kind, str) and kind not in ("function", "custom"):
        raise ValueError(
            f"is of type {kind[:40]!r}, but a namespace has functions and custom tools"
        )
    return without_nulls(tool)


class ResponsesNamespace(Strict):
    """Tools whose calls name it. Its description is part of that of its first tool."""

    type: Literal["namespace"]
    name: Annotated[str, Field(pattern=LONG_NAME)]
    description: str | None = None
    tools: Annotated[
        list[
            Annotated[
                Annotated[ResponsesFunctionTool | ResponsesCustomTool, Field(discriminator="type")],
                BeforeValidator(_member),
            ]
        ],
        Field(max_length=MAX_TOOLS),
    ]


class ResponsesToolSearch(Strict):
    """A search that the client runs: what it finds are tools from then on."""

    type: Literal["tool_search"]
    execution: Literal["client"]
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None

    def listed(self) -> dict[str, object]:
        return self.model_dump(exclude_none=True)


Single = ResponsesFunctionTool | ResponsesCustomTool | ResponsesToolSearch


class FunctionChoice(Strict):
    type: Literal["function", "custom"]
    name: str
    namespace: str | None = None


class NamespaceChoice(Strict):
    """All tools of a namespace."""

    type: Literal["namespace"]
    name: str


class SearchChoice(Strict):
    type: Literal["tool_search"]


def _chosen(choice: object) -> str:
    kind = _field(choice, "type")
    if kind in LEFT_OUT:
        return PASSED
    return str(kind) if kind in ("namespace", SEARCH) else FUNCTION


class ResponsesAllowedChoice(Strict):
    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[
        list[
            Annotated[
                Annotated[FunctionChoice, Tag(FUNCTION)]
                | Annotated[NamespaceChoice, Tag("namespace")]
                | Annotated[SearchChoice, Tag(SEARCH)]
                | Annotated[LeftOut, Tag(PASSED)],
                Discriminator(_chosen),
                BeforeValidator(_known),
            ]
        ],
        Field(min_length=1, max_length=MAX_TOOLS),
    ]

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        if self.mode == "required" and all(isinstance(tool, LeftOut) for tool in self.tools):
            message = "`tool_choice.tools` must have a function: this server calls no other tools"
            raise refused(message, "tool_choice.tools")
        return self


def _known_choice(choice: object) -> object:
    kind = _field(choice, "type")
    if kind == "allowed_tools":
        return choice
    if isinstance(choice, dict) and isinstance(kind, str) and kind not in (*CALLED[:2], SEARCH):
        raise ValueError(f"is of type {kind[:40]!r}, which is not supported: use function")
    return without_nulls(choice)


Offered = Annotated[
    Annotated[ResponsesFunctionTool, Tag(FUNCTION)]
    | Annotated[ResponsesCustomTool, Tag("custom")]
    | Annotated[ResponsesNamespace, Tag("namespace")]
    | Annotated[ResponsesToolSearch, Tag(SEARCH)]
    | Annotated[LeftOut, Tag(PASSED)],
    Discriminator(_fate),
    BeforeValidator(_known),
]
ToolList = Annotated[list[Offered], Field(max_length=MAX_TOOLS)]
Choice = FunctionChoice | SearchChoice | ResponsesAllowedChoice
ToolChoice = Annotated[
    Mode | Annotated[Choice, Field(discriminator="type")], BeforeValidator(_known_choice)
]


def listed_tool(tool: Single | ResponsesNamespace | LeftOut) -> dict[str, object]:
    """The tool as items show it."""
    if not isinstance(tool, ResponsesNamespace):
        return tool.listed()
    return listed_namespace(tool, [member.listed() for member in tool.tools])


def listed_namespace(
    space: ResponsesNamespace, tools: list[dict[str, object]]
) -> dict[str, object]:
    head = {"type": space.type, "name": space.name, "description": space.description or ""}
    return {**head, "tools": tools}
