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
    try:
        return frozenset(meta.find_undeclared_variables(ENVIRONMENT.parse(template)))
    except TemplateSyntaxError:
        return frozenset()


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
def _keys(template: str) -> frozenset[str]:
    """The names by which it may take a part of something: attributes and strings."""
    try:
        tree = ENVIRONMENT.parse(template)
    except TemplateSyntaxError:
        return frozenset()
    strings = (one.value for one in tree.find_all(nodes.Const) if isinstance(one.value, str))
    return frozenset({one.attr for one in tree.find_all(nodes.Getattr)}.union(strings))
