"""What a chat template asks for, found in its syntax: words in its prose ask for nothing."""

from functools import lru_cache

from jinja2 import TemplateSyntaxError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """The blocks in which templates for training have what the model says."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 has it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


ENVIRONMENT = ImmutableSandboxedEnvironment(
    extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do", Generation]
)


@lru_cache(maxsize=64)  # asked with every request
def variables(template: str) -> frozenset[str]:
    """The names that it takes from who renders it; none of a template that never renders."""
    return frozenset(meta.find_undeclared_variables(_tree(template)))


def knows_tools(template: str) -> bool:
    """Whether the template does anything with the tools that it is given."""
    return "tools" in variables(template)


def has_tools_in_messages(template: str) -> bool:
    """Whether the template reads tools, but as a part of a message."""
    return not knows_tools(template) and "tools" in _keys(template)


def knows_calls(template: str) -> bool:
    """Whether the template does anything with the calls of a message."""
    return "tool_calls" in _keys(template)


@lru_cache(maxsize=64)
def has_results_in_calls(template: str) -> bool:
    """Whether results are a part of the message that called, and messages of theirs unknown."""
    compared = _tree(template).find_all(nodes.Compare)
    roles = {text.value for one in compared for text in one.find_all(nodes.Const)}
    return "tool_responses" in _keys(template) and "tool" not in roles


@lru_cache(maxsize=64)
def prints_arguments(template: str) -> bool:
    """Whether it prints the arguments of calls as they are, and never asks whether they are text.

    Of an object that would be Python's notation.
    """
    tree = _tree(template)
    asked = [one.node for one in tree.find_all(nodes.Test) if one.name in ("string", "mapping")]
    printed: list[nodes.Node | None] = [
        part for one in tree.find_all(nodes.Output) for part in one.nodes
    ]
    printed += [one.node for one in tree.find_all(nodes.Filter) if one.name == "string"]
    return any(map(_is_arguments, printed)) and not any(map(_is_arguments, asked))


def _is_arguments(node: nodes.Node | None) -> bool:
    match node:
        case nodes.Getattr(attr="arguments") | nodes.Getitem(arg=nodes.Const(value="arguments")):
            return True
    return False


@lru_cache(maxsize=64)
def _keys(template: str) -> frozenset[str]:
    """The names by which it takes a part of something: `x.name`, `x["name"]`, `x.get("name")`."""
    tree = _tree(template)
    given: list[nodes.Node] = [one.arg for one in tree.find_all(nodes.Getitem)]
    given += [part for one in tree.find_all(nodes.Call) for part in one.args]
    strings = {one.value for one in given if isinstance(one, nodes.Const)}
    return frozenset(strings.union(one.attr for one in tree.find_all(nodes.Getattr)))


def _tree(template: str) -> nodes.Template:
    """Of a template that never renders, an empty one."""
    try:
        return ENVIRONMENT.parse(template)
    except TemplateSyntaxError:
        return ENVIRONMENT.parse("")
