"""Custom tools: they take a text, which may have to fit a grammar. To the model they are functions
with one string, and what it calls them with becomes their text again.
"""

import json
import re
from typing import Annotated, Literal

from pydantic import Field

from deployments.ingress.http.schema import Strict
from deployments.text.grammar.grammar import lark_of_texts
from deployments.text.tool import INPUT, TEXT_PARAMETERS, Tool

HEAD = re.compile(rf'\s*\{{\s*"{INPUT}"\s*:\s*"')
# Whole characters of a JSON string: none ends within an escape, or between two surrogates.
CHARACTERS = re.compile(
    r"""(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}
    |\\u[dD][89abAB][0-9a-fA-F]{2}(?=[^\\]|\\[^u])
    |\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])+""",
    re.VERBOSE,
)


class TextInput(Strict):
    type: Literal["text"]


class Grammar(Strict):
    syntax: Literal["lark", "regex"]
    definition: Annotated[str, Field(min_length=1)]


def text_tool(
    name: str, description: str | None, grammar: Grammar | None, path: str, param: str
) -> Tool:
    """`param` is the path of the grammar. Raises Refused."""
    parts = [description or "", f"`{INPUT}` is the whole text that the tool takes."]
    if grammar is None:
        return Tool(name, "\n".join(filter(None, parts)), TEXT_PARAMETERS, param=path)
    parts.append(f"It must fit this grammar ({grammar.syntax}):\n{grammar.definition.strip()}")
    lark = grammar.definition
    if grammar.syntax == "regex":
        lark = lark_of_texts(grammar.definition, param)
    described = "\n".join(filter(None, parts))
    return Tool(name, described, TEXT_PARAMETERS, strict=True, param=param, input_lark=lark)


class CalledText:
    """The text of one call, of the JSON of its arguments as that comes. Arguments of another form
    are the text themselves.
    """

    def __init__(self) -> None:
        self._held_back = ""
        self._is_open: bool | None = None  # the string; None until it has begun
        self.is_complete = False

    def push(self, arguments: str) -> str:
        """The next characters of the text."""
        self._held_back += arguments
        if self._is_open is None:
            self._begin()
        return self._take() if self._is_open else ""

    def finish(self) -> str:
        """The rest, of arguments that never had the form."""
        rest = "" if self._is_open is not None else self._held_back
        self._held_back = ""
        return rest

    def _begin(self) -> None:
        found = HEAD.match(self._held_back)
        if found is not None:
            self._is_open, self._held_back = True, self._held_back[found.end() :]

    def _take(self) -> str:
        found = CHARACTERS.match(self._held_back)
        raw = "" if found is None else found[0]
        self._held_back = self._held_back[len(raw) :]
        if self._held_back.startswith('"'):
            self._is_open, self.is_complete, self._held_back = False, True, ""
        return _decoded(raw)


def _decoded(raw: str) -> str:
    """The text without lone surrogates, which no encoding has."""
    if "\\" not in raw:
        return raw
    try:
        text: str = json.loads(f'"{raw}"', strict=False)
    except ValueError:
        return raw
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def text_of_call(arguments: str) -> str:
    """The text of a whole call."""
    called = CalledText()
    return called.push(arguments) + called.finish()


def arguments_of(text: str) -> dict[str, object]:
    """The arguments of a call with this text, as templates take them."""
    return {INPUT: text}
