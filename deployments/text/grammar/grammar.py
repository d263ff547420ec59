"""Translates the grammars of requests to llguidance's, and refuses what it cannot honour.

Every grammar that is returned compiles, unless it has special tokens that the model's tokenizer
lacks. A check takes up to seconds, so call these functions off the event loop.
"""

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import lru_cache
from types import ModuleType
from typing import TypeVar

from deployments.text.grammar.closed_objects import with_closed_objects
from deployments.text.grammar.json_schema import (
    KeywordFilter,
    constrains,
    filter_keywords,
    has_inexact_integer,
    inexact_integers,
    most_combined_patterns,
    n_pattern_properties,
    unsupported_min_properties,
)
from deployments.text.grammar.reasons import reason_in_words, regex_reason
from deployments.wire import ErrorKind, Refused

T = TypeVar("T")

MAX_GRAMMAR_BYTES = 256 << 10
MAX_COMBINED_PATTERNS, MAX_PATTERN_PROPERTIES = 7, 64
MAX_MESSAGE_CHARACTERS = 400  # llguidance quotes whole grammars
TOO_DEEP = "it is nested too deeply"
# What may stand between two tokens of JSON. It is bounded, because a model could fill its context
# with whitespace.
WHITESPACE = r"\x20|\x20?\n[\x20\t]{0,32}"
# llguidance recurses once for each level of a grammar. It was seen to use up to 900 bytes of stack
# for a byte of grammar.
STACK_BYTES_PER_BYTE = 2048
MIN_STACK_BYTES = 16 << 20
_starting = threading.Lock()


def from_json_schema(schema: object, param: str) -> str:
    """A grammar of the JSON values that a schema (draft 2020-12) allows.

    Properties come in the order of the schema. Without `additionalProperties` there are no others.
    """
    return _checked({"json_schema": _checked_schema(schema, param)}, param)


def lenient_json_schema(schema: object, param: str) -> str:
    """The same. Of a schema that no grammar can express, the part that one can express."""
    _llguidance(param)
    try:
        return from_json_schema(schema, param)
    except Refused:
        return _checked({"json_schema": _lenient_schema(schema, param)}, param, lenient=True)


def any_json_object(param: str) -> str:
    return from_json_schema({"type": "object"}, param)


def from_regex(regex: str, param: str) -> str:
    """The whole output matches. Look-around and back-references are refused."""
    _check_size(regex, param)
    if not regex:
        return from_choice([""], param)
    try:
        body = _llguidance(param).regex_to_lark(regex)
    except UnicodeEncodeError as failure:
        raise _refused(str(failure), param) from failure
    return _checked({"lark_grammar": f"start: /{body}/"}, param, in_words=regex_reason)


def from_choice(choices: Sequence[str], param: str) -> str:
    """The output is one of the choices."""
    if not choices:
        raise _refused("there must be at least one choice", param)
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
    except RecursionError as failure:
        raise _refused(TOO_DEEP, param) from failure
    except LookupError as failure:
        raise _refused("not a GBNF grammar: it ends too early", param) from failure
    except Exception as failure:  # its parser raises Exception itself
        raise _refused(f"not a GBNF grammar: {failure}", param) from failure
    return from_lark(lark, param)


def lark_json(schema: object, param: str) -> str:
    """The values of a schema as a part of a Lark grammar: `%json {...}`."""
    checked = _checked_schema(schema, param)
    _checked({"json_schema": checked}, param)
    return f"%json {json.dumps(checked)}"


def lenient_lark_json(schema: object, param: str) -> str:
    """The same, of the part of a schema that a grammar can express."""
    lenient = _lenient_schema(schema, param)
    _checked({"json_schema": lenient}, param, lenient=True)
    return f"%json {json.dumps(lenient)}"


def with_deep_stack(text: str, work: Callable[[], T]) -> T:
    """Runs `work` on a thread whose stack is large enough for any nesting of the text."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as failure:
            outcome.set_exception(failure)

    thread = threading.Thread(target=run, name="grammar", daemon=True)
    with _starting:
        before = threading.stack_size(max(MIN_STACK_BYTES, len(text) * STACK_BYTES_PER_BYTE))
        try:
            thread.start()
        finally:
            threading.stack_size(before)
    return outcome.result()


def _checked_schema(schema: object, param: str) -> Mapping[str, object]:
    """The schema with our settings for llguidance, which replace those of the client."""
    filtered = _filtered_schema(schema, param, constrains)
    for minimum in unsupported_min_properties(filtered):
        message = f"minProperties {minimum} requires that all but one are named in `required`"
        raise _refused(message, param)
    for number in inexact_integers(filtered):
        raise _refused(f"const and enum must have no integer beyond 2**53, as {number}", param)
    return {**filtered, "x-guidance": {"whitespace_pattern": WHITESPACE}}


def _lenient_schema(schema: object, param: str) -> Mapping[str, object]:
    """The schema without the patterns and integers that no grammar can express. llguidance leaves
    out all else that it cannot express.
    """
    filtered = _filtered_schema(schema, param, constrains)
    _to_json(filtered, param)
    expressible = _filtered_schema(filtered, param, _is_expressible)
    return {**expressible, "x-guidance": {"whitespace_pattern": WHITESPACE, "lenient": True}}


def _filtered_schema(schema: object, param: str, keeps: KeywordFilter) -> Mapping[str, object]:
    if isinstance(schema, bool):
        schema = {"allOf": [schema]}
    try:
        filtered = filter_keywords(schema, keeps)
        if isinstance(filtered, Mapping):
            _check_patterns(filtered, param)
            return with_closed_objects(filtered)
    except RecursionError as failure:
        raise _refused(TOO_DEEP, param) from failure
    raise _refused("a JSON Schema must be an object or a boolean", param)


def _check_patterns(schema: Mapping[str, object], param: str) -> None:
    """llguidance's time and memory double with each pattern that a string has to match as well, and
    grow with the fourth power of the number of patterns of names.
    """
    if (n := most_combined_patterns(schema)) > MAX_COMBINED_PATTERNS:
        message = f"a string has to match {n} patterns at once; at most {MAX_COMBINED_PATTERNS} may"
        raise _refused(message, param)
    if (n := n_pattern_properties(schema)) > MAX_PATTERN_PROPERTIES:
        message = f"patternProperties have {n} names; at most {MAX_PATTERN_PROPERTIES} are allowed"
        raise _refused(message, param)


def _is_expressible(name: str, value: object) -> bool:
    if has_inexact_integer(name, value):
        return False
    if name != "pattern" or not isinstance(value, str):
        return True
    return not _validation_errors(
        json.dumps({"grammars": [{"json_schema": {"pattern": value}}]}), True
    )


def _checked(
    grammar: Mapping[str, object],
    param: str,
    *,
    lenient: bool = False,
    in_words: Callable[[str], str] = reason_in_words,
) -> str:
    """llguidance's own form of the grammar. Unless `lenient`, its warnings are refusals, too."""
    text = _to_json({"grammars": [grammar]}, param)
    _llguidance(param)
    if messages := _validation_errors(text, "json_schema" in grammar and not lenient):
        reason = "; ".join(map(in_words, messages))
        raise _refused(reason[:MAX_MESSAGE_CHARACTERS], param)
    return text


def _to_json(value: object, param: str) -> str:
    try:
        text = json.dumps(value, allow_nan=False)
    except RecursionError as failure:
        raise _refused(TOO_DEEP, param) from failure
    except (ValueError, TypeError) as failure:
        raise _refused(str(failure), param) from failure
    if len(text) > MAX_GRAMMAR_BYTES:
        message = f"as a grammar it has {len(text)} bytes; at most {MAX_GRAMMAR_BYTES} are allowed"
        raise _refused(message, param)
    return text


@lru_cache(maxsize=64)
def _validation_errors(grammar: str, strict: bool) -> tuple[str, ...]:
    """Why llguidance refuses the grammar; none if it does not. `strict` counts its warnings."""
    from llguidance import LLMatcher

    def validate() -> tuple[bool, list[str]]:
        return LLMatcher.validate_grammar_with_warnings(grammar)

    failed, messages = with_deep_stack(grammar, validate)
    return tuple(messages) if failed or strict else ()


def _check_size(text: str, param: str) -> None:
    if len(text) > MAX_GRAMMAR_BYTES:
        raise _refused(f"it must have at most {MAX_GRAMMAR_BYTES} bytes", param)


def _llguidance(param: str) -> ModuleType:
    try:
        import llguidance
    except ImportError as failure:
        message = "structured output requires llguidance, which this server does not have"
        raise Refused.of_kind(ErrorKind.NOT_SUPPORTED, message, param) from failure
    return llguidance


def _refused(message: str, param: str) -> Refused:
    return Refused.of_kind(ErrorKind.INVALID_REQUEST, f"`{param}`: {message}", param)
