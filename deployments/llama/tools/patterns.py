"""Compiles untrusted patterns so that a search can be stopped and needs little memory.

The package `regex` has timeouts, which `re` lacks; it looks at them only now and then. Its
extensions of the language are refused, and so are large counts, because some of them need unbounded
memory.
"""

import re
from collections.abc import Iterable
from math import prod
from typing import Protocol

import regex  # type: ignore[import-untyped]

from deployments.llama.tools.folder import ToolError

MAX_REPEATS = 1000  # all counts of a pattern, multiplied
TOKEN = re.compile(
    r"\\[pPN]\{[^}]*\}|\\.|\{\d*,?\d*\}|\(\?(?:[:=!]|<[=!]|P?<\w+>|[ims]+\))?|.", re.S
)


class Pattern(Protocol):
    def search(self, string: str, *, timeout: float) -> object: ...


def regular_expression(text: str, *, literal: bool = False, ignore_case: bool = False) -> Pattern:
    """Raises ToolError."""
    tokens = TOKEN.findall(re.escape(text) if literal else text)
    _check(tokens)
    body = "".join(rf"\{token}" if token == "{" else token for token in tokens)
    return _compiled(body, regex.IGNORECASE if ignore_case else 0)


def glob(text: str) -> Pattern:
    """A glob for paths: `*` and `?` do not match slashes, `**` does.

    A glob without a slash matches the last name.
    """
    tokens = re.split(r"(\*\*/|\*\*|\*|\?)", text)
    meanings = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(meanings.get(token, re.escape(token)) for token in tokens)
    anywhere = "" if "/" in text or text.startswith("**") else "(?:[^/]+/)*"
    return _compiled(rf"\A{anywhere}{body}\Z", regex.DOTALL)


def _check(tokens: Iterable[str]) -> None:
    counts = []
    for token in tokens:
        if token == "(?":
            raise ToolError("not a regular expression of the kind that is supported: `(?`")
        if token.startswith("{") and len(token) > 1:
            counts.append(max((int(n[:6]) for n in re.findall(r"\d+", token)), default=1))
    if prod(max(count, 1) for count in counts) > MAX_REPEATS:
        raise ToolError(f"the counts of the pattern are more than {MAX_REPEATS}, multiplied")


def _compiled(text: str, flags: int) -> Pattern:
    try:
        compiled: Pattern = regex.compile(text, flags)
    except (regex.error, RecursionError, ValueError) as failure:
        raise ToolError(f"not a regular expression: {failure}") from failure
    return compiled
