"""Writes the grammars of requests as llguidance reads them; what can't be honoured is refused.

Every grammar returned compiles, but for special tokens, which only a model's tokenizer knows.
Checking one takes up to seconds: call it off the event loop.
"""

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from types import ModuleType
from typing import TypeVar

from deployments.wire import ErrorKind, Refused, RequestError

T = TypeVar("T")

MAX_BYTES = 256 << 10
MAX_MESSAGE = 400  # characters; llguidance quotes whole grammars
# Between two tokens of JSON: nothing, a space, or a new line with its indentation. Unbounded
# whitespace lets a model fill its context with it.
WHITESPACE = r"\x20|\x20?\n[\x20\t]{0,32}"
# llguidance recurses once a level of a grammar: up to 900 bytes of stack were measured for a byte.
STACK_PER_BYTE = 2048
LEAST_STACK = 16 << 20
_starting = threading.Lock()
_UNICODE_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL)


def from_json_schema(schema: object, param: str) -> str:
    """A grammar of the JSON values that a schema (draft 2020-12) allows.

    Properties come in the order of the schema.
    """
    return _checked({"json_schema": _checked_schema(schema, param)}, param)


def any_json_object(param: str) -> str:
    return from_json_schema({"type": "object"}, param)


def from_regex(regex: str, param: str) -> str:
    """All of the output matches the regular expression: no look-around, no back-references."""
    _check_size(regex, param)
    if not regex:
        return from_choice([""], param)
    try:
        body = _llguidance(param).regex_to_lark(regex)
    except UnicodeEncodeError as failure:
        raise _refused(str(failure), param) from failure
    return _checked({"lark_grammar": f"start: /{body}/"}, param)


def from_choice(choices: Sequence[str], param: str) -> str:
    """The output is one of the choices."""
    if not choices:
        raise _refused("there is nothing to choose from", param)
    literals = " | ".join(json.dumps(choice) for choice in choices)
    return _checked({"lark_grammar": f"start: {literals}"}, param)


def from_lark(lark: str, param: str) -> str:
    """Lark as llguidance reads it; its rule `start` is the output."""
    return _checked({"lark_grammar": lark}, param)


def from_gbnf(gbnf: str, param: str) -> str:
    """llama.cpp's notation; its rule `root` is the output."""
    _check_size(gbnf, param)
    _llguidance(param)
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        lark = gbnf_to_lark(_UNICODE_ESCAPE.sub(_plain, gbnf))
    except Exception as failure:  # its parser raises plain ones, IndexError among them
        raise _refused(f"not a GBNF grammar: {failure}", param) from failure
    return from_lark(lark, param)


def lark_json(schema: object, param: str) -> str:
    """What stands for the values of a schema in a Lark grammar: `%json {...}`."""
    checked = _checked_schema(schema, param)
    _checked({"json_schema": checked}, param)
    return f"%json {json.dumps(checked)}"


def with_deep_stack(text: str, work: Callable[[], T]) -> T:
    """Runs `work` on a thread whose stack holds a recursion as deep as the text may nest."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as failure:
            outcome.set_exception(failure)

    thread = threading.Thread(target=run, name="grammar", daemon=True)
    with _starting:
        before = threading.stack_size(max(LEAST_STACK, len(text) * STACK_PER_BYTE))
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return outcome.result()


def _checked_schema(schema: object, param: str) -> Mapping[str, object]:
    """The schema with our settings, which stand where llguidance looks for a user's own."""
    if isinstance(schema, bool):
        schema = {"allOf": [schema]}
    if not isinstance(schema, Mapping):
        raise _refused("a JSON Schema is an object", param)
    for found in _too_few_names(schema):
        raise _refused(f"minProperties {found}: unnamed properties can't be told apart", param)
    return {**schema, "x-guidance": {"whitespace_pattern": WHITESPACE}}


def _too_few_names(schema: Mapping[str, object]) -> Iterator[int]:
    """Each minProperties that only several unnamed properties reach: keys may come twice."""
    found: list[object] = [schema]
    while found:
        part = found.pop()
        if isinstance(part, Mapping):
            found.extend(part.values())
            least, named = part.get("minProperties"), part.get("required")
            n_named = len(named) if isinstance(named, list) else 0
            if isinstance(least, int) and least > n_named + 1:
                yield least
        elif isinstance(part, list):
            found.extend(part)


def _checked(grammar: Mapping[str, object], param: str) -> str:
    """llguidance's own form of a grammar that it accepts."""
    try:
        text = json.dumps({"grammars": [grammar]}, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as failure:
        raise _refused(str(failure), param) from failure
    _check_size(text, param)
    _llguidance(param)
    if message := _problem(text, "json_schema" in grammar):
        raise _refused(message, param)
    return text


@lru_cache(maxsize=64)
def _problem(grammar: str, strict: bool) -> str:
    """Why llguidance would not honour a grammar; `strict` takes its warnings for refusals."""
    from llguidance import LLMatcher

    def validate() -> tuple[bool, list[str]]:
        return LLMatcher.validate_grammar_with_warnings(grammar)

    failed, messages = with_deep_stack(grammar, validate)
    return "; ".join(messages)[:MAX_MESSAGE] if failed or strict else ""


def _check_size(text: str, param: str) -> None:
    if len(text) > MAX_BYTES:
        raise _refused(f"a grammar has at most {MAX_BYTES} bytes", param)


def _plain(escape: re.Match[str]) -> str:
    """The character of a Unicode escape, which llguidance's converter garbles."""
    digits = escape[1] or escape[2]
    if digits is None:
        return escape[0]
    code = int(digits, 16)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    char = chr(code)
    return "\\" + char if char in '"\\[]' else char


def _llguidance(param: str) -> ModuleType:
    try:
        import llguidance
    except ImportError as failure:
        message = "this server has no llguidance, which structured output needs"
        raise Refused(RequestError(ErrorKind.NOT_SUPPORTED, message, param)) from failure
    return llguidance


def _refused(message: str, param: str) -> Refused:
    return Refused(RequestError(ErrorKind.INVALID_REQUEST, f"{param}: {message}", param))
