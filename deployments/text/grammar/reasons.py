"""Why llguidance refuses a grammar, in the words of JSON Schema and of regular expressions.

Its own reasons name types of Rust, options of its own and lines of grammars that it was given
in the client's place. A reason that is not known here stays as it is.
"""

import json
import re
from collections.abc import Callable

TYPES = {
    "f64": "a number",
    "positive integer": "an integer of at least 0",
    "array": "a list",
    "object": "an object",
    "string": "a string",
    "bool": "a boolean",
}
# "at 1(8): ", and the line itself below the reason
POSITION = re.compile(r"(?:at )?(\d+)\((\d+)\): (.*?)(?:\n +\d+ \|.*)?", re.DOTALL)
REGEX = re.compile(
    r"(?:invalid regex .*? \(in regex\): )?regex parse error:\n(.*)error: (.*)", re.DOTALL
)
WORD_BOUNDARY = re.compile(
    r"invalid regex .*? \(in regex\): lookarounds not supported yet; .*", re.DOTALL
)
NAMES = re.compile(r'"((?:[^"\\]|\\.)*)"')


def reason_in_words(message: str) -> str:
    """Says what is wrong with a JSON Schema, a regular expression or a grammar in Lark."""
    message = message.strip()
    position = POSITION.fullmatch(message)
    if position is not None:
        line, column, inner = position.groups()
        return f"at line {line}, column {column}: {reason_in_words(inner)}"
    for pattern, words in REASONS:
        found = pattern.fullmatch(message)
        if found is not None:
            return words(found)
    return message


def regex_reason(message: str) -> str:
    """The same of a regular expression, whose client knows of no line and column."""
    position = POSITION.fullmatch(message.strip())
    return reason_in_words(message if position is None else position[3])


def _typed(found: re.Match[str]) -> str:
    kind, name, received = found.groups()
    return f"`{name}` must be {TYPES.get(kind, kind)}, got {received}"


def _unsupported(found: re.Match[str]) -> str:
    names = [f"`{name}`" for name in NAMES.findall(found[1])]
    return f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not supported"


def _elsewhere(found: re.Match[str]) -> str:
    name = json.dumps(found[1].removeprefix("json-schema:///"))
    return f"{name} is not in the schema, and schemas from elsewhere are not read"


def _regex(found: re.Match[str]) -> str:
    shown = found[1].splitlines()
    pattern = shown[0].strip() if len(shown) == 2 else ""
    where = f" `{pattern}`" if pattern else ""
    return f"the regular expression{where} is not valid here: {found[2].strip()}"


Words = Callable[[re.Match[str]], str]
REASONS: tuple[tuple[re.Pattern[str], Words], ...] = (
    (re.compile(r"Expected ([\w ]+) for '([^']+)', got (.*)", re.DOTALL), _typed),
    (
        re.compile(r"Expected string for '([^']+)' item, got (.*)", re.DOTALL),
        lambda found: f"`{found[1]}` must be a list of strings, got {found[2]}",
    ),
    (
        re.compile(r"Invalid type: (.*)", re.DOTALL),
        lambda found: f"`type` must be a type of JSON Schema, got {json.dumps(found[1])}",
    ),
    (
        re.compile(r"type must be a string(?: or array of strings)?"),
        lambda _: "`type` must be a string or a list of strings",
    ),
    (
        re.compile(r"schema must be an object or boolean"),
        lambda _: "each schema within it must be an object or a boolean",
    ),
    (
        re.compile(r"(\S+) must be (an array|an object|a string)(.*)", re.DOTALL),
        lambda found: f"`{found[1]}` must be {found[2].replace('an array', 'a list')}{found[3]}",
    ),
    (re.compile(r"Unimplemented keys: \[(.*)\]"), _unsupported),
    (
        re.compile(r"oneOf constraints are not supported.*", re.DOTALL),
        lambda _: "`oneOf` is not supported where two of its schemas may match: use `anyOf`",
    ),
    (
        re.compile(r"Unsatisfiable schema: anyOf is empty"),
        lambda _: "no value can match it: `enum`, `type` or `anyOf` is an empty list",
    ),
    (
        re.compile(r"Unsatisfiable schema: (.*)", re.DOTALL),
        lambda found: f"no value can match it: {found[1]}",
    ),
    (
        re.compile(r"Pointer '(.*)' does not exist"),
        lambda found: f"`$ref` names {json.dumps('#' + found[1])}, which is not in the schema",
    ),
    (re.compile(r"Resource '(.*)' is not present in a registry and .*"), _elsewhere),
    (re.compile(r"invalid multiple of"), lambda _: "`multipleOf` must be greater than 0"),
    (REGEX, _regex),
    (
        WORD_BOUNDARY,
        lambda _: "word boundaries and look-around are not supported in regular expressions",
    ),
    (
        re.compile(r"failed to compile JSON schema: (.*)", re.DOTALL),
        lambda found: f"in this JSON Schema, {reason_in_words(found[1])}",
    ),
    (
        re.compile(r"(Expected token .*?, found .*?) \(at .*\)", re.DOTALL),
        lambda found: found[1],
    ),
)
