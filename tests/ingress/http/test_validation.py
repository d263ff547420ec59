"""However much is wrong with a body, one thing is told of it, and little more is looked for."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from deployments.anthropic.messages_schema import CountRequest, MessagesRequest
from deployments.contract.errors import Refused
from deployments.ingress.http import schema as shared_schema
from deployments.ingress.http.schema import Strict
from deployments.ingress.http.validation import MAX_ERRORS, parse
from deployments.ingress.streams.routes import StreamLookup
from deployments.llama.completion.infill import InfillRequest
from deployments.llama.completion.schema import LlamaCompletionRequest
from deployments.llama.server.tokenize import DetokenizeRequest, TokenizeRequest
from deployments.llama.tools.files import EditFile
from deployments.openai.chat.schema import ChatRequest
from deployments.openai.completions.schema import CompletionRequest
from deployments.openai.conversations.schema import ConversationBody, ItemsBody
from deployments.openai.decisions.schema import DecisionRequest
from deployments.openai.decisions.systemone import SystemOneRequest
from deployments.openai.embeddings.schema import (
    CohereEmbedRequest,
    EmbeddingsRequest,
    EmbedRequest,
    NativeRequest,
    PoolingRequest,
)
from deployments.openai.ranking.classify import ClassifyRequest
from deployments.openai.ranking.schema import RerankRequest, ScoreRequest, TextsRerankRequest
from deployments.openai.responses.schema import ResponsesRequest
from deployments.web.api.schema import ChatBody, MessagesBody
from tests.effort import tries
from tests.ingress.edge import every

BODIES = [
    ChatRequest,
    ClassifyRequest,
    CohereEmbedRequest,
    CompletionRequest,
    CountRequest,
    DecisionRequest,
    DetokenizeRequest,
    EmbedRequest,
    EmbeddingsRequest,
    InfillRequest,
    MessagesRequest,
    LlamaCompletionRequest,
    NativeRequest,
    PoolingRequest,
    RerankRequest,
    ResponsesRequest,
    ScoreRequest,
    StreamLookup,
    SystemOneRequest,
    TextsRerankRequest,
    TokenizeRequest,
]
LIMIT = 4096
ROLES = ("system", "user", "assistant", "tool")


def lists_of(schema: object) -> Iterator[Any]:
    """Every list in what pydantic made of a body, but for those of any JSON."""
    if isinstance(schema, list | tuple):
        for inner in schema:
            yield from lists_of(inner)
    if not isinstance(schema, dict) or (schema.get("type") == "tagged-union" and "ref" in schema):
        return
    if schema.get("type") == "list":
        yield schema
    for inner in schema.values():
        yield from lists_of(inner)


@pytest.mark.parametrize("body", BODIES)
def test_every_list_is_bounded_or_is_left_at_its_first_wrong_item(body: type[BaseModel]) -> None:
    found = list(lists_of(body.__pydantic_core_schema__))
    assert found
    for schema in found:
        holds_json = schema["items_schema"].get("schema_ref", "").count("JsonValue")
        bounded = schema.get("fail_fast") or schema.get("max_length", LIMIT + 1) <= LIMIT
        assert bounded or holds_json, schema


def test_a_body_with_very_many_unknown_fields_is_refused_without_a_list_of_them() -> None:
    body = {"prompt": "x", **{f"f{number}": 1 for number in range(MAX_ERRORS + 1)}}
    with pytest.raises(Refused, match=f"{MAX_ERRORS + 1} places"):
        parse(CompletionRequest, body)


WRONG: list[object] = [
    *(1, -5, 1.5, 1 << 70, "", "x", "x" * 3000, True, None),
    *([], {}, [1], ["x"], [None], [[]], [{}], [{"type": "x"}], [{"role": "x"}], [{"role": 1}]),
    *({"type": "x"}, {"type": "function"}, {"type": "json_schema"}, {"type": "enabled"}, {"a": 1}),
    *([{"role": role, "content": 1, "tool_calls": 1} for role in (name,)] for name in ROLES),
    *([{"type": "function", "function": {}}], [{"type": "text", "text": 1}], [1, "x"]),
]
NESTED_WRONG: list[object] = tries(
    [5, "nope", {"type": "nope"}, [None]],
    [*WRONG, [[]], -7, "", {"type": 5}, {"surely_unknown": 1}],
)
# Words of Python's or of pydantic's, and names of our classes. A pattern is told in words, and the
# size that a list has only where it may be nothing but a list. A value of a protocol is quoted.
JARGON = re.compile(
    r"(?<!')\b(None|NoneType|True|False|dict|dictionary|str|int|float|bool|tuple|instance|pydantic"
    r"|Input|Unable|tag|union|Literal|pattern|validation|valid|(greater|less)than|not \d+ or"
    r"|[A-Z]\w+(Request|Message|Part|Item|Tool|Format|Options|Block|Choice|Body))\b"
)
MORE_BODIES = [*BODIES, ChatBody, ConversationBody, EditFile, ItemsBody, MessagesBody]


def last_below(base: type[BaseModel]) -> set[type[BaseModel]]:
    """Returns the classes without subclasses: they have the fields of all the others."""
    below = base.__subclasses__()
    return set[type[BaseModel]]().union(*map(last_below, below)) if below else {base}


def test_no_model_of_a_request_tells_what_is_wrong_in_words_of_ours() -> None:
    """Each model that any of the protocols reads, however deep it is in a body."""
    assert every(), "all of them are imported"
    told = set()
    models = last_below(Strict)
    assert len(models) > 90
    for model in models:
        names = [field.alias or name for name, field in model.model_fields.items()]
        for name in names:
            for value in WRONG:
                try:
                    parse(model, {name: value})
                except Refused as refusal:
                    told.add(re.sub("`.*?`", "", refusal.error.message))
    assert len(told) > 100
    assert not [message for message in told if JARGON.search(message)]


@pytest.mark.parametrize("body", BODIES)
def test_what_is_wrong_is_told_in_the_words_of_json(body: type[BaseModel]) -> None:
    needed = {name: "x" for name, field in body.model_fields.items() if field.is_required()}
    told = set()
    for name in body.model_fields:
        for value in WRONG:
            try:
                parse(body, {**needed, name: value})
            except Refused as refusal:
                told.add(str(refusal).removeprefix(f"`{name}`"))
    assert len(told) > 5
    assert not [message for message in told if JARGON.search(message)]


Schema = dict[str, Any]


class Nested:
    """Bodies with a wrong value at one field each, however deep, by the body's JSON Schema."""

    def __init__(self, body: type[BaseModel]) -> None:
        self._whole: Schema = body.model_json_schema()
        self._defs: Schema = self._whole.get("$defs", {})

    def bodies(self) -> Iterator[Schema]:
        right = self._right(self._whole)
        for name, schema in self._whole["properties"].items():
            for value in self._wrong(schema):
                yield {**right, name: value}

    def _resolved(self, schema: Schema) -> Schema:
        while "$ref" in schema:
            schema = self._defs[schema["$ref"].rpartition("/")[2]]
        return schema

    def _right(self, schema: Schema) -> Any:
        """The shortest value, but for limits between fields."""
        schema = self._resolved(schema)
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        if forms := schema.get("anyOf", schema.get("oneOf")):
            return self._right(forms[0])
        if "properties" in schema:
            needed = schema.get("required", ())
            return {name: self._right(schema["properties"][name]) for name in needed}
        if schema.get("type") == "array":
            return [self._right(schema["items"]) for _ in range(schema.get("minItems", 0))]
        simple = {"string": "a", "integer": 1, "number": 1, "boolean": True, "object": {}}
        return simple.get(schema.get("type", ""))

    def _wrong(self, schema: Schema, outer: tuple[str, ...] = ()) -> Iterator[object]:
        reference = schema.get("$ref", "")
        if reference in outer:
            return
        outer = (*outer, reference) if reference else outer
        schema = self._resolved(schema)
        yield from NESTED_WRONG
        forms: list[Schema] = schema.get("anyOf") or schema.get("oneOf") or []
        for form in forms:
            yield from self._wrong(form, outer)
        if "properties" in schema:
            right = self._right(schema)
            yield {**right, "surely_unknown": 1}
            for name in right:
                yield {other: value for other, value in right.items() if other != name}
            for name, inner in schema["properties"].items():
                for value in self._wrong(inner, outer):
                    yield {**right, name: value}
        if "items" in schema:
            for value in self._wrong(schema["items"], outer):
                yield [value]


@pytest.mark.parametrize("body", MORE_BODIES)
def test_what_is_wrong_in_a_nested_field_is_told_with_its_path(body: type[BaseModel]) -> None:
    refusals = []
    for wrong in Nested(body).bodies():
        try:
            parse(body, wrong)
        except Refused as refusal:
            refusals.append(refusal.error)
    assert refusals
    for error in refusals:
        assert error.param
        assert f"`{error.param}`" in error.message
    told = {error.message for error in refusals}
    assert not [message for message in told if JARGON.search(re.sub("`.*?`", "", message))]
    assert not [message for message in told if " or greater" in message or " 0 items" in message]


@pytest.mark.parametrize("wrong", [-1, "1", None, 1.5, [1], {}])
@pytest.mark.parametrize("after", [0, 1, 5])
def test_an_id_is_wrong_in_a_long_list_as_in_a_short_one(
    wrong: object, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for request, field in ((DetokenizeRequest, "tokens"), (CompletionRequest, "prompt")):
        body = {field: [1] * 9 + [wrong] + [2] * after}
        with pytest.raises(Refused) as short:
            parse(request, body)
        with monkeypatch.context() as patch:
            patch.setattr(shared_schema, "PIECE", 4)
            with pytest.raises(Refused) as long:
                parse(request, body)
        assert long.value.error == short.value.error
