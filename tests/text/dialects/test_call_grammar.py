"""Whatever a dialect's grammar lets a model say, its parser hears as calls that fit the schemas."""

import json
from collections.abc import Callable
from functools import cache

import jsonschema
import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from tokenizers import AddedToken, Tokenizer

from deployments.contract.errors import ErrorKind, Refused
from deployments.text.dialects.call_grammar import constrainable
from deployments.text.dialects.dialect import Dialect, ReplyContext, WriteMark
from deployments.text.dialects.registry import DIALECTS
from deployments.text.reply import Reply, fold_reply
from deployments.text.tokens.tokenizer import TextTokenizer
from deployments.text.tool import Tool
from tests.effort import tries
from tests.text.cards import byte_level, card, token_id

LIMIT = 4000  # tokens: a grammar that goes on so long has no end
SHORT = {"type": "string", "maxLength": 8}
FLAT = Tool(
    "flat",
    "",
    {
        "type": "object",
        "properties": {
            "text": SHORT,
            "number": {"type": "integer", "minimum": 3, "maximum": 900},
            "unit": {"enum": ["a b", "</parameter", 'q"\\', ""]},
            "maybe": {"anyOf": [{"type": "boolean"}, {"type": "null"}], "default": None},
            "list": {"type": "array", "items": SHORT, "maxItems": 2},
            "one": {"const": "x"},
        },
        "required": ["text", "number"],
        "additionalProperties": False,
    },
)
OPTIONAL = Tool("optional", "", {"properties": {"a": {"type": "null"}, "b": {"enum": [1, "z"]}}})
EMPTY = Tool("empty", "", {})
NONE = Tool("none", "", {"type": "object", "properties": {}, "additionalProperties": False})
NESTED = Tool(
    "name-space.nested_2",
    "",
    {
        "$defs": {"point": {"type": "object", "properties": {"x": {"type": "integer"}},
                            "required": ["x"], "additionalProperties": False}},
        "type": "object",
        "properties": {
            "at": {"$ref": "#/$defs/point"},
            "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]$"},
            "odd key": {"type": "boolean"},
        },
        "required": ["at", "code"],
        "additionalProperties": False,
    },
)  # fmt: skip
STRICT = Tool(
    "strict",
    "",
    {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": "^[a-c]{1,3}$"},
            "either": {"type": ["integer", "string"], "maxLength": 3, "minimum": 7},
        },
        "required": ["code", "either"],
        "additionalProperties": False,
    },
)
SETS = {
    "flat": (FLAT, NONE),
    "optional": (OPTIONAL, NONE),
    "empty": (EMPTY,),
    "nested": (NESTED, FLAT),
    "strict": (STRICT, NONE),
}
BY_DIALECT = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)


@cache
def with_marks(dialect: str) -> Tokenizer:
    """A tokenizer that has the dialect's marks as special tokens."""
    tokenizer = Tokenizer.from_str(byte_level().to_str())
    tokenizer.add_special_tokens([AddedToken(mark) for mark in DIALECTS[dialect].marks])
    return tokenizer


def as_text(text: str) -> str:
    return json.dumps(text)


def as_token(tokenizer: Tokenizer) -> WriteMark:
    def mark(text: str) -> str:
        found = tokenizer.token_to_id(text)
        return as_text(text) if found is None else f"<[{found}]>"

    return mark


@cache
def reader(tokenizer: Tokenizer) -> tuple[LLTokenizer, TextTokenizer, int]:
    end = token_id(tokenizer, "<|im_end|>")
    lean = LLTokenizer(tokenizer.to_str(), eos_token=end)
    return lean, TextTokenizer(card(tokenizer)), end


def drawn(lark: str, tokenizer: Tokenizer, rng: np.random.Generator) -> str:
    """Tokens drawn evenly from all that the grammar allows, to its end."""
    lean, text, end = reader(tokenizer)
    matcher = LLMatcher(lean, f"start: calls\n{lark}")
    assert not matcher.is_error(), matcher.get_error()
    bits, ids = allocate_token_bitmask(1, lean.vocab_size), list[int]()
    while len(ids) < LIMIT:
        fill_next_token_bitmask(matcher, bits)
        allowed = np.flatnonzero(np.unpackbits(bits[0].view(np.uint8), bitorder="little"))
        chosen = int(rng.choice(allowed))
        if chosen == end:
            return text.decode(ids, skip_special_tokens=False)
        assert matcher.consume_token(chosen), matcher.get_error()
        ids.append(chosen)
        if matcher.is_stopped():
            return text.decode(ids, skip_special_tokens=False)
    raise AssertionError(f"no end: {text.decode(ids)}")


def heard(dialect: Dialect, tools: tuple[Tool, ...], text: str) -> Reply:
    parser = dialect.parser(ReplyContext(tools=tools))
    return fold_reply([*parser.push(text), *parser.finish()])


def check(dialect: Dialect, tools: tuple[Tool, ...], text: str) -> int:
    """How many valid calls the text holds; nothing else may be in it."""
    schemas = {tool.name: {**tool.parameters, "type": "object"} for tool in tools}
    reply = heard(dialect, tools, text)
    assert (reply.content, reply.thought) == ("", ""), text
    for call in reply.calls:
        jsonschema.validate(json.loads(call.arguments), schemas[call.name])
    return len(reply.calls)


@BY_DIALECT
@pytest.mark.parametrize("marks", ["text", "tokens"])
@pytest.mark.parametrize("tools", SETS.values(), ids=SETS)
def test_what_the_grammar_allows_is_one_valid_call(
    dialect: Dialect, marks: str, tools: tuple[Tool, ...]
) -> None:
    tokenizer = byte_level() if marks == "text" else with_marks(dialect.name)
    lark = dialect.calls_lark(tools, False, as_token(tokenizer))
    for seed in range(tries(3, 6)):
        text = drawn(lark, tokenizer, np.random.default_rng(seed))
        assert check(dialect, tools, text) == 1, text


@BY_DIALECT
@pytest.mark.parametrize("marks", ["text", "tokens"])
def test_in_parallel_there_may_be_several(dialect: Dialect, marks: str) -> None:
    tokenizer = byte_level() if marks == "text" else with_marks(dialect.name)
    tools = (OPTIONAL, NONE)
    lark = dialect.calls_lark(tools, True, as_token(tokenizer))
    counts = set[int]()
    for seed in range(12):
        counts.add(check(dialect, tools, drawn(lark, tokenizer, np.random.default_rng(seed))))
        if len(counts) > 1 and min(counts) == 1:
            break
    assert min(counts) == 1
    assert (max(counts) > 1) is (dialect.name != "harmony")


@BY_DIALECT
def test_each_of_the_tools_is_called(dialect: Dialect) -> None:
    tools = (OPTIONAL, NONE, EMPTY)
    lark = dialect.calls_lark(tools, False, as_text)
    missing = {tool.name for tool in tools}
    for seed in range(30):
        text = drawn(lark, byte_level(), np.random.default_rng(seed))
        missing -= {call.name for call in heard(dialect, tools, text).calls}
        if not missing:
            break
    assert not missing


@BY_DIALECT
@pytest.mark.parametrize(
    "parameters",
    [
        {"type": "string"},
        {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}},
        {"type": "object", "properties": {"a": {"not": {"type": "integer"}}}, "required": ["a"]},
    ],
    ids=["no object", "unique items", "not"],
)
def test_a_schema_that_cannot_be_honoured_is_refused(
    dialect: Dialect, parameters: dict[str, object]
) -> None:
    with pytest.raises(Refused) as refusal:
        dialect.calls_lark((Tool("f", "", parameters),), False, as_text)
    assert refusal.value.error.kind is ErrorKind.INVALID_REQUEST
    assert refusal.value.error.param == "tools"


LOOSE = Tool(
    "loose",
    "",
    {
        "type": "object",
        "properties": {
            "mode": {"enum": ["x", "y"]},
            "value": {"type": "", "enum": ["p", 1]},
            "at": {"type": "date", "enum": ["z"]},
            "n": {"type": "int", "minimum": 3, "maximum": 900},
            "code": {"type": "string", "pattern": "(?=a)", "maxLength": 4},
        },
        "required": ["mode", "value", "n"],
    },
)


@BY_DIALECT
def test_of_a_tool_that_is_not_strict_only_what_cannot_be_said_is_left_out(
    dialect: Dialect,
) -> None:
    lark = dialect.calls_lark((constrainable(LOOSE),), False, as_text)
    said = {
        "type": "object",
        "properties": {
            "mode": {"enum": ["x", "y"]},
            "n": {"type": "integer", "minimum": 3, "maximum": 900},
            "code": {"type": "string", "maxLength": 4},
            "value": {"enum": ["p", 1]},
            "at": {"enum": ["z"]},
        },
        "required": ["mode", "value", "n"],
        "additionalProperties": False,
    }
    for seed in range(tries(1, 6)):
        text = drawn(lark, byte_level(), np.random.default_rng(seed))
        [call] = heard(dialect, (LOOSE,), text).calls
        jsonschema.validate(json.loads(call.arguments), said)


def unbounded(parameter: dict[str, object]) -> Tool:
    return Tool("f", "", {"properties": {"a": parameter}, "required": ["a"]})


LONG: dict[str, Callable[[str], str]] = {
    "qwen3_coder": lambda text: f"<tool_call>\n<function=f>\n<parameter=a>\n{text}\n</parameter>\n",
    "glm": lambda text: f"<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>{text}</arg_value>\n",
    "minimax": lambda text: (
        f'<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">{text}</parameter>\n'
    ),
    "seed": lambda text: f"<seed:tool_call>\n<function=f>\n<parameter=a>{text}</parameter>\n",
    "gemma": lambda text: f"<start_function_call>call:f{{a:<escape>{text}<escape>}}",
    "gemma4": lambda text: f'<|tool_call>call:f{{a:<|"|>{text}<|"|>}}',
}


@pytest.mark.parametrize("name", LONG)
@pytest.mark.parametrize("marks", ["text", "tokens"])
def test_text_of_any_kind_can_be_a_string(name: str, marks: str) -> None:
    tokenizer = byte_level() if marks == "text" else with_marks(name)
    lark = DIALECTS[name].calls_lark((unbounded({"type": "string"}),), False, as_token(tokenizer))
    lean, _, _ = reader(tokenizer)
    for text in ["", "\n", 'if a < b:\n  print("</p>")\n', "</para", "日本 {}[]", "null", "12"]:
        matcher = LLMatcher(lean, f"start: calls\n{lark}")
        ids = tokenizer.encode(LONG[name](text), add_special_tokens=False).ids
        assert matcher.consume_tokens(ids), (text, matcher.get_error())
