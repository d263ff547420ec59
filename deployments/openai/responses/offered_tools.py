"""All tools that a response may call, under the names by which the model knows them.

The tools of a namespace have its name before their own. A call has both apart, as the client has
them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, groupby

from deployments.contract.errors import refused
from deployments.openai.fields.custom_tools import text_tool
from deployments.openai.fields.tools import Mode, Selection, check_number, function_tool
from deployments.openai.responses.tools import (
    SEARCH,
    Choice,
    FunctionChoice,
    LeftOut,
    NamespaceChoice,
    Offered,
    ResponsesAllowedChoice,
    ResponsesCustomTool,
    ResponsesFunctionTool,
    ResponsesNamespace,
    ResponsesToolSearch,
    SearchChoice,
    Single,
    listed_namespace,
)
from deployments.text.tool import Tool

# OpenAI's models know all functions without a namespace by this one.
PLAIN_NAMESPACE = "functions"
Identity = tuple[str, str]  # of a tool: its namespace or "", and its own name


@dataclass(frozen=True, slots=True)
class ToolsWithPath:
    """A list of tools. `is_found`: the client's search has found them."""

    path: str
    tools: Sequence[Offered]
    is_found: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedTool:
    """`is_found`: the client's search has found it."""

    path: str
    given: Single
    space: ResponsesNamespace | None = None
    is_found: bool = False
    shown: str = ""  # the name that the model knows

    @property
    def identity(self) -> Identity:
        return self.namespace or "", self.name

    @property
    def namespace(self) -> str | None:
        return None if self.space is None else self.space.name

    @property
    def name(self) -> str:
        return SEARCH if isinstance(self.given, ResponsesToolSearch) else self.given.name

    @property
    def is_deferred(self) -> bool:
        return not isinstance(self.given, ResponsesToolSearch) and self.given.defer_loading

    @property
    def called(self) -> dict[str, object]:
        """The fields by which a call names it."""
        names: dict[str, object] = {"name": self.name}
        return names if self.namespace is None else {**names, "namespace": self.namespace}

    def tool(self) -> Tool:
        """Raises Refused."""
        match self.given:
            case ResponsesFunctionTool():
                tool = function_tool(self.path, self.given)
            case ResponsesCustomTool(name=name, description=text, grammar=grammar):
                param = f"{self.path}.format.definition"
                tool = text_tool(name, text, grammar, self.path, param)
            case ResponsesToolSearch(description=text, parameters=parameters):
                schema = parameters or {"type": "object", "properties": {}}
                tool = Tool(SEARCH, text or "", schema, param=f"{self.path}.parameters")
        return replace(tool, name=self.shown, description=self._described(tool.description))

    def _described(self, description: str) -> str:
        space = self.space
        if space is None or not space.description or space.tools[0] is not self.given:
            return description
        return f"{description}\n\nAll tools of {space.name}: {space.description}".lstrip()


def shown_name(identity: Identity) -> str:
    namespace, name = identity
    if namespace in ("", PLAIN_NAMESPACE):
        return name
    return f"{namespace.rstrip('_')}__{name}"


class OfferedTools:
    """All tools, in the order of the prompt. The first list is the request's own, the others are
    those of its items: of two tools with one name in these, the later one counts.
    """

    def __init__(self, lists: Sequence[ToolsWithPath]) -> None:
        own, *later = (list(each_tool(listed)) for listed in lists)
        added = {tool.identity: tool for tools in later for tool in tools}
        tools = [*(tool for tool in own if tool.identity not in added), *added.values()]
        check_number(len(tools))
        names = _shown_names(tool.identity for tool in tools)
        searches = any(isinstance(tool.given, ResponsesToolSearch) for tool in tools)
        self._names = names
        self.tools = [
            replace(tool, shown=names[tool.identity])
            for tool in tools
            if tool.is_found or not (searches and tool.is_deferred)
        ]

    def shown(self, namespace: str | None, name: str) -> str:
        """The name of a tool that was called, which may be offered no longer."""
        identity = namespace or "", name
        return self._names.get(identity) or shown_name(identity)

    def by_shown(self) -> Mapping[str, OfferedTool]:
        return {tool.shown: tool for tool in self.tools}

    def resolved(self) -> list[tuple[str, Tool]]:
        """Each with its path. Raises Refused."""
        return [(tool.path, tool.tool()) for tool in self.tools]

    def listed(self) -> list[dict[str, object]]:
        """The tools, as responses show them."""
        found: list[dict[str, object]] = []
        for space, tools in groupby(self.tools, lambda tool: tool.space):
            listed = [tool.given.listed() for tool in tools]
            found += listed if space is None else [listed_namespace(space, listed)]
        return found

    def selection(self, choice: Mode | Choice | None) -> Mode | Selection | None:
        """Raises Refused."""
        match choice:
            case FunctionChoice():
                param = "tool_choice.name"
                return Selection("required", self._chosen(choice, param), param, one=True)
            case SearchChoice():
                param = "tool_choice.type"
                return Selection("required", self._chosen(choice, param), param, one=True)
            case ResponsesAllowedChoice(mode=mode, tools=tools):
                param = "tool_choice.tools"
                names = tuple(name for tool in tools for name in self._chosen(tool, param))
                return Selection(mode if names else "none", names, param)
        return choice

    def _chosen(
        self, choice: FunctionChoice | NamespaceChoice | SearchChoice | LeftOut, param: str
    ) -> tuple[str, ...]:
        """The names that the model knows. Raises Refused for a tool that is not offered."""
        if isinstance(choice, LeftOut):
            return ()
        alike = [tool for tool in self.tools if _is_meant(tool, choice)]
        if not alike:
            name = SEARCH if isinstance(choice, SearchChoice) else choice.name
            raise refused(f"`{param}` names {name[:64]!r}, which is not in `tools`", param)
        plain = [tool for tool in alike if tool.namespace is None]
        exact = plain if isinstance(choice, FunctionChoice) else []
        return tuple(tool.shown for tool in exact or alike)


def _is_meant(tool: OfferedTool, choice: FunctionChoice | NamespaceChoice | SearchChoice) -> bool:
    match choice:
        case SearchChoice():
            return isinstance(tool.given, ResponsesToolSearch)
        case NamespaceChoice(name=name):
            return tool.namespace == name
    named = (tool.given.type, tool.name) == (choice.type, choice.name)
    return named and choice.namespace in (None, tool.namespace)


def each_tool(tools: ToolsWithPath) -> Iterator[OfferedTool]:
    """Each tool, and each of a namespace."""
    for index, tool in enumerate(tools.tools):
        path = f"{tools.path}[{index}]"
        if isinstance(tool, ResponsesNamespace):
            for inner, member in enumerate(tool.tools):
                yield OfferedTool(
                    path=f"{path}.tools[{inner}]", given=member, space=tool, is_found=tools.is_found
                )
        elif not isinstance(tool, LeftOut):
            yield OfferedTool(path=path, given=tool, is_found=tools.is_found)


def _shown_names(identities: Iterable[Identity]) -> dict[Identity, str]:
    """Each is another name; those without a namespace keep their own."""
    names: dict[Identity, str] = {}
    taken: set[str] = set()
    for identity in sorted(dict.fromkeys(identities), key=lambda identity: identity[0] != ""):
        name = shown_name(identity)
        tries = chain([name], (f"{name}_{number}" for number in count(2)))
        names[identity] = next(free for free in tries if free not in taken)
        taken.add(names[identity])
    return names
