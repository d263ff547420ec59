"""Writes the grammars of requests as llguidance reads them; what can't be honoured is refused.

Every grammar returned compiles, but for special tokens, which only a model's tokenizer knows.
Checking one takes up to seconds: call it off the event loop.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from types import ModuleType
from typing import TypeVar

from deployments.text.grammar.json_schema import Keeps, asks, sifted, too_few_names
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


def from_json_schema(schema: object, param: str) -> str:
    """A grammar of the JSON values that a schema (draft 2020-12) allows.

    Properties come in the order of the schema.
    """
    return _checked({"json_schema": _checked_schema(schema, param)}, param)


def lenient_json_schema(schema: object, param: str) -> str:
    """The same, or where no grammar holds the schema, one of what can be held of it."""
    _llguidance(param)
    try:
        return from_json_schema(schema, param)
    except Refused:
        return _checked({"json_schema": _near_schema(schema, param)}, param, near=True)


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


@lru_cache(maxsize=64)
def from_gbnf(gbnf: str, param: str) -> str:
    """llama.cpp's notation; its rule `root` is the output."""
    _check_size(gbnf, param)
    _llguidance(param)
    from deployments.text.grammar.gbnf import lark_of

    try:
        lark = lark_of(gbnf)
    except Exception as failure:  # its parser raises plain ones, IndexError among them
        raise _refused(f"not a GBNF grammar: {failure}", param) from failure
    return from_lark(lark, param)


def lark_json(schema: object, param: str) -> str:
    """What stands for the values of a schema in a Lark grammar: `%json {...}`."""
    checked = _checked_schema(schema, param)
    _checked({"json_schema": checked}, param)
    return f"%json {json.dumps(checked)}"


def lenient_lark_json(schema: object, param: str) -> str:
    """The same of what can be held of a schema."""
    near = _near_schema(schema, param)
    _checked({"json_schema": near}, param, near=True)
    return f"%json {json.dumps(near)}"


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
    given = _given_schema(schema, param, asks)
    for found in too_few_names(given):
        raise _refused(f"minProperties {found}: unnamed properties can't be told apart", param)
    return {**given, "x-guidance": {"whitespace_pattern": WHITESPACE}}


def _near_schema(schema: object, param: str) -> Mapping[str, object]:
    """The schema less its patterns that are beyond a grammar; llguidance leaves out the rest."""
    given = _given_schema(schema, param, asks)
    _written(given, param)
    held = _given_schema(given, param, _is_held)
    return {**held, "x-guidance": {"whitespace_pattern": WHITESPACE, "lenient": True}}


def _given_schema(schema: object, param: str, keeps: Keeps) -> Mapping[str, object]:
    if isinstance(schema, bool):
        schema = {"allOf": [schema]}
    try:
        given = sifted(schema, keeps)
    except RecursionError as failure:
        raise _refused(str(failure), param) from failure
    if not isinstance(given, Mapping):
        raise _refused("a JSON Schema is an object", param)
    return given


def _is_held(name: str, value: object) -> bool:
    if name != "pattern" or not isinstance(value, str):
        return True
    return not _problem(json.dumps({"grammars": [{"json_schema": {"pattern": value}}]}), True)


def _checked(grammar: Mapping[str, object], param: str, *, near: bool = False) -> str:
    """llguidance's own form of a grammar that it accepts, `near` less what it warns of."""
    text = _written({"grammars": [grammar]}, param)
    _llguidance(param)
    if message := _problem(text, "json_schema" in grammar and not near):
        raise _refused(message, param)
    return text


def _written(value: object, param: str) -> str:
    try:
        text = json.dumps(value, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as failure:
        raise _refused(str(failure), param) from failure
    if len(text) > MAX_BYTES:
        message = f"it is {len(text)} bytes as llguidance reads it, of at most {MAX_BYTES}"
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


def _llguidance(param: str) -> ModuleType:
    try:
        import llguidance
    except ImportError as failure:
        message = "this server has no llguidance, which structured output needs"
        raise Refused(RequestError(ErrorKind.NOT_SUPPORTED, message, param)) from failure
    return llguidance


def _refused(message: str, param: str) -> Refused:
    return Refused(RequestError(ErrorKind.INVALID_REQUEST, f"{param}: {message}", param))
