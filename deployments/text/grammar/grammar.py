"""Translates the grammars of requests to llguidance's, and refuses what it cannot honour.

Every grammar that is returned compiles, unless it has special tokens that the model's tokenizer
lacks. llguidance reads them in processes of their own. A check takes up to seconds, so call these
functions off the event loop.
"""

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from deployments.contract.errors import ErrorKind, Refused
from deployments.text.grammar.matcher import MAX_MESSAGE_CHARACTERS
from deployments.text.grammar.quoted_lark import quoted_lark
from deployments.text.grammar.quoted_regex import NotQuotable
from deployments.text.grammar.reader import (
    GrammarTokens,
    NoReaderError,
    UnreadableGrammarError,
    check_followed,
    lark_of_gbnf,
    lark_of_regex,
    validated,
)
from deployments.text.grammar.reasons import reason_in_words, regex_reason
from deployments.text.grammar.schemas.closed_objects import with_closed_objects
from deployments.text.grammar.schemas.exact_numbers import (
    NotExact,
    NoValue,
    exact_lark,
)
from deployments.text.grammar.schemas.expressible import Reducer, TooManyParts
from deployments.text.grammar.schemas.inexact_numbers import has_inexact
from deployments.text.grammar.schemas.json_schema import (
    ANNOTATIONS,
    DEFINITIONS,
    constrains,
    filter_keywords,
    most_combined_patterns,
    n_pattern_properties,
    unsupported_min_properties,
)
from deployments.text.grammar.schemas.references import with_plain_references
from deployments.text.grammar.schemas.unevaluated import with_closed_combinations
from deployments.text.grammar.schemas.wellformed import wellformed

log = logging.getLogger(__name__)

MAX_GRAMMAR_BYTES = 256 << 10
MAX_COMBINED_PATTERNS, MAX_PATTERN_PROPERTIES = 7, 64
MAX_TOLD = 1000  # characters of a line of the log
INEXACT = "a number that takes more than float64, as beyond 2**53,"
TOO_DEEP = "it is nested too deeply"
# What may stand between two tokens of JSON. It is bounded, because a model could fill its context
# with whitespace.
WHITESPACE = r"\x20|\x20?\n[\x20\t]{0,32}"


def from_json_schema(schema: object, param: str) -> str:
    """A grammar of the JSON values that a schema (draft 2020-12) allows.

    Properties come in the order of the schema. Without `additionalProperties` there are no others.
    """
    return _checked(_json_grammar(schema, param), param)


def lenient_json_schema(schema: object, param: str) -> str:
    """The same. Of a schema that no grammar can express, the part that one can express."""
    return from_json_schema(expressible_schema(schema, param), param)


def expressible_schema(schema: object, param: str) -> Mapping[str, object]:
    """The part of a schema that a grammar can express. The log says what else there was.

    Raises Refused where nothing is left.
    """
    left_out: list[str] = []
    try:
        _to_json(schema, param)
        formed = wellformed(schema, left_out.append)
        if not isinstance(formed, Mapping):
            raise _refused("a JSON Schema must be an object", param)
        plain = with_plain_references(formed, left_out.append)
        plain = with_closed_combinations(plain, is_exact=False)
        part = Reducer(plain, partial(_is_expressible, param=param), left_out.append).reduce(plain)
    except RecursionError as failure:
        raise _refused(TOO_DEEP, param) from failure
    except TooManyParts as failure:
        raise _refused("too many of its parts can't be expressed", param) from failure
    if left_out and not part.keys() - ANNOTATIONS:
        raise _refused(f"no grammar can express it: {left_out[0]}"[:MAX_MESSAGE_CHARACTERS], param)
    if left_out:
        told = "; ".join(left_out).encode("unicode_escape").decode()
        log.warning("%s: no grammar can express these parts: %s", param, told[:MAX_TOLD])
    return part


def any_json_object(param: str) -> str:
    return from_json_schema({"type": "object"}, param)


def from_regex(regex: str, param: str) -> str:
    """The whole output matches. Look-around and back-references are refused."""
    _check_size(regex, param)
    if not regex:
        return from_choice([""], param)
    with _refusing(param):
        body = lark_of_regex(regex)
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


def from_gbnf(gbnf: str, param: str) -> str:
    """llama.cpp's notation; its rule `root` is the output."""
    _check_size(gbnf, param)
    with _refusing(param):
        lark = lark_of_gbnf(gbnf)
    return from_lark(lark, param)


def lark_json(schema: object, param: str) -> str:
    """The values of a schema as a part of a Lark grammar: `%json {...}` or `%lark {...}`."""
    grammar = _json_grammar(schema, param)
    _checked(grammar, param)
    if "lark_grammar" in grammar:
        return f"%lark {{\n{grammar['lark_grammar']}\n}}"
    return f"%json {json.dumps(grammar['json_schema'])}"


def lark_of_texts(regex: str, param: str) -> str:
    """Lark of the texts that `from_regex` allows."""
    lark: str = json.loads(from_regex(regex, param))["grammars"][0]["lark_grammar"]
    return lark


def quoted_text_lark(lark: str, param: str) -> str:
    """Lark of JSON strings, whose texts are those that a grammar allows."""
    from_lark(lark, param)
    try:
        quoted = quoted_lark(lark)
    except NotQuotable as failure:
        raise _refused(str(failure), param) from failure
    from_lark(quoted, param)
    return quoted


def check_grammar(grammar: str, tokens: GrammarTokens, param: str) -> None:
    """Has a whole grammar followed for a while as an engine will. Raises Refused."""
    with _refusing(param):
        check_followed(grammar, tokens)


def _json_grammar(schema: object, param: str) -> Mapping[str, object]:
    """The grammar with our settings for llguidance, which replace those of the client."""
    checked = _checked_schema(schema, param)
    definitions = [checked.get(name) for name in DEFINITIONS]
    parts = [part for named in definitions if isinstance(named, Mapping) for part in named.values()]
    options = {"x-guidance": {"whitespace_pattern": WHITESPACE}}
    if not any(map(has_inexact, [checked, *parts])):
        return {"json_schema": {**checked, **options}}
    try:
        _to_json(checked, param)
        return {"lark_grammar": exact_lark(checked, options, WHITESPACE)}
    except NoValue as failure:
        raise _refused(f"no value can match it: {failure}", param) from failure
    except NotExact as failure:
        message = f"{INEXACT} is not supported here: {failure}"
        raise _refused(message, param) from failure
    except RecursionError as failure:
        raise _refused(TOO_DEEP, param) from failure


def _checked_schema(schema: object, param: str) -> Mapping[str, object]:
    filtered = _filtered_schema(schema, param)
    for minimum in unsupported_min_properties(filtered):
        message = f"minProperties {minimum} requires that all but one are named in `required`"
        raise _refused(message, param)
    return {name: value for name, value in filtered.items() if name != "x-guidance"}


def _filtered_schema(schema: object, param: str) -> Mapping[str, object]:
    if isinstance(schema, bool):
        schema = {"allOf": [schema]}

    def refuse(reason: str) -> None:
        raise _refused(reason, param)

    try:
        filtered = filter_keywords(schema, constrains)
        if isinstance(filtered, Mapping):
            plain = with_plain_references(filtered, refuse)
            _check_patterns(plain, param)
            return with_closed_objects(with_closed_combinations(plain, is_exact=True))
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


def _is_expressible(schema: Mapping[str, object], param: str) -> bool:
    try:
        from_json_schema(schema, param)
    except Refused as refusal:
        if refusal.error.kind is not ErrorKind.INVALID_REQUEST:
            raise
        return False
    return True


def _checked(
    grammar: Mapping[str, object],
    param: str,
    *,
    in_words: Callable[[str], str] = reason_in_words,
) -> str:
    """llguidance's own form of the grammar. Its warnings about a schema are refusals, too."""
    text = _to_json({"grammars": [grammar]}, param)
    with _refusing(param):
        failed, messages = validated(text)
    if failed or (messages and "json_schema" in grammar):
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


def _check_size(text: str, param: str) -> None:
    if len(text) > MAX_GRAMMAR_BYTES:
        raise _refused(f"it must have at most {MAX_GRAMMAR_BYTES} bytes", param)


@contextmanager
def _refusing(param: str) -> Iterator[None]:
    try:
        yield
    except UnreadableGrammarError as failure:
        raise _refused(str(failure), param) from failure
    except NoReaderError as failure:
        message = "structured output requires llguidance, which this server does not have"
        raise Refused.of_kind(ErrorKind.NOT_SUPPORTED, message, param) from failure


def _refused(message: str, param: str) -> Refused:
    return Refused.of_kind(ErrorKind.INVALID_REQUEST, f"`{param}`: {message}", param)
