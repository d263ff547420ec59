"""Finds in the syntax of a chat template what it reads. The text that it prints does not count."""

from functools import lru_cache

from jinja2 import TemplateSyntaxError, meta, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class GenerationTag(Extension):
    """`{% generation %}` blocks, in which templates for training have the model's replies."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 has it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


ENVIRONMENT = ImmutableSandboxedEnvironment(
    extensions=["jinja2.ext.loopcontrols", "jinja2.ext.do", GenerationTag]
)


@lru_cache(maxsize=64)  # every request reads it
def variables(template: str) -> frozenset[str]:
    """The variables that the template reads; none for a template with a syntax error."""
    return frozenset(meta.find_undeclared_variables(_tree(template)))


def knows_tools(template: str) -> bool:
    """Whether the template reads `tools`."""
    return "tools" in variables(template)


def has_tools_in_messages(template: str) -> bool:
    """Whether the template reads the tools of a message only."""
    return not knows_tools(template) and "tools" in _keys(template)


def knows_calls(template: str) -> bool:
    """Whether the template reads the calls of a message."""
    return "tool_calls" in _keys(template)


@lru_cache(maxsize=64)
def has_results_in_calls(template: str) -> bool:
    """Whether the template reads results from the message with the calls, not as messages."""
    compared = _tree(template).find_all(nodes.Compare)
    roles = {text.value for comparison in compared for text in comparison.find_all(nodes.Const)}
    return "tool_responses" in _keys(template) and "tool" not in roles


@lru_cache(maxsize=64)
def prints_arguments(template: str) -> bool:
    """Whether the template prints the arguments of calls without a test whether they are a string.

    It would print an object in Python's notation.
    """
    tree = _tree(template)
    tested = [test.node for test in tree.find_all(nodes.Test) if test.name in ("string", "mapping")]
    printed: list[nodes.Node | None] = [
        part for output in tree.find_all(nodes.Output) for part in output.nodes
    ]
    printed += [
        filtered.node for filtered in tree.find_all(nodes.Filter) if filtered.name == "string"
    ]
    return any(map(_is_arguments, printed)) and not any(map(_is_arguments, tested))


def _is_arguments(node: nodes.Node | None) -> bool:
    match node:
        case nodes.Getattr(attr="arguments") | nodes.Getitem(arg=nodes.Const(value="arguments")):
            return True
    return False


@lru_cache(maxsize=64)
def _keys(template: str) -> frozenset[str]:
    """The keys that the template reads: `x.name`, `x["name"]`, `x.get("name")`."""
    tree = _tree(template)
    keys: list[nodes.Node] = [item.arg for item in tree.find_all(nodes.Getitem)]
    keys += [part for call in tree.find_all(nodes.Call) for part in call.args]
    strings = {key.value for key in keys if isinstance(key, nodes.Const)}
    return frozenset(strings.union(attribute.attr for attribute in tree.find_all(nodes.Getattr)))


def _tree(template: str) -> nodes.Template:
    """An empty template in the place of one with a syntax error."""
    try:
        return ENVIRONMENT.parse(template)
    except TemplateSyntaxError:
        return ENVIRONMENT.parse("")
