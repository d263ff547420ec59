"""The fields for structured output, of which a request may set one."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, JsonValue, model_validator

from deployments.contract.errors import Refused, refused
from deployments.ingress.http.body import parse_json
from deployments.ingress.http.schema import NAME, Strict
from deployments.openai.fields.common import GenerationFields
from deployments.text.grammar.grammar import (
    any_json_object,
    from_choice,
    from_gbnf,
    from_json_schema,
    from_lark,
    from_regex,
    lenient_json_schema,
)

Value = TypeVar("Value")
Schema = dict[str, JsonValue]
SchemaOrText = Schema | str  # vLLM's clients send either
Choices = Annotated[list[str], Field(min_length=1, max_length=1024)]
Written = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=NAME)]


class TextFormat(Strict):
    type: Literal["text"]


class JsonObjectFormat(Strict):
    type: Literal["json_object"]
    json_schema: Schema | None = Field(default=None, alias="schema")  # llama-server's


class NamedSchema(Strict):
    """A named JSON Schema. Without `strict`, its parts that are not supported are left out."""

    name: Name
    description: str | None = None
    json_schema: Schema | None = Field(default=None, alias="schema")
    strict: bool | None = None


class JsonSchemaFormat(Strict):
    type: Literal["json_schema"]
    json_schema: NamedSchema


ResponseFormat = Annotated[
    TextFormat | JsonObjectFormat | JsonSchemaFormat, Field(discriminator="type")
]


class StructuredOutputs(Strict):
    """vLLM's form."""

    json_schema: SchemaOrText | None = Field(default=None, alias="json")
    regex: str | None = None
    choice: Choices | None = None
    grammar: Written | None = None
    json_object: Literal[True] | None = None


@dataclass(frozen=True, slots=True)
class Structure:
    """`grammar` makes llguidance's grammar in up to seconds; its errors name `param`."""

    param: str
    grammar: Callable[[str], str]

    def write(self) -> str:
        return self.grammar(self.param)


class StructureFields(GenerationFields):
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    json_schema: Schema | None = None
    regex: str | None = None
    choice: Choices | None = None
    grammar: Written | None = None
    guided_json: SchemaOrText | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: Written | None = None

    @model_validator(mode="after")
    def _one_structure(self) -> Self:
        params = [structure.param for structure in self._structures()]
        if len(params) > 1:
            raise refused(f"`{params[1]}` cannot be combined with `{params[0]}`", params[1])
        if self.structured_outputs is not None and not params:
            raise refused("`structured_outputs` must set one of its fields", "structured_outputs")
        return self

    @property
    def structure(self) -> Structure | None:
        return next(self._structures(), None)

    def _structures(self) -> Iterator[Structure]:
        yield from _of_format(self.response_format)
        if self.structured_outputs is not None:
            yield from _of_outputs(self.structured_outputs)
        yield from _schema("json_schema", self.json_schema)
        yield from _given("regex", self.regex, from_regex)
        yield from _given("choice", self.choice, from_choice)
        yield from _given("grammar", self.grammar, from_grammar)
        yield from _schema("guided_json", self.guided_json)
        yield from _given("guided_regex", self.guided_regex, from_regex)
        yield from _given("guided_choice", self.guided_choice, from_choice)
        yield from _given("guided_grammar", self.guided_grammar, from_grammar)


def from_grammar(text: str, param: str) -> str:
    """GBNF if it has GBNF's definitions, else Lark."""
    return from_gbnf(text, param) if "::=" in text else from_lark(text, param)


def _of_format(
    form: TextFormat | JsonObjectFormat | JsonSchemaFormat | None,
) -> Iterator[Structure]:
    match form:
        case JsonObjectFormat(json_schema=None):
            yield Structure("response_format", any_json_object)
        case JsonObjectFormat(json_schema=schema):
            yield _of_object("response_format.schema", schema)
        case JsonSchemaFormat(json_schema=NamedSchema(json_schema=None)):
            yield Structure("response_format.json_schema", any_json_object)
        case JsonSchemaFormat(json_schema=named):
            param = "response_format.json_schema.schema"
            yield _of_object(param, named.json_schema, strict=bool(named.strict))


def _of_object(param: str, schema: Schema | None, *, strict: bool = False) -> Structure:
    """An empty schema would also allow values that are no objects."""
    if schema == {}:
        return Structure(param, any_json_object)
    return Structure(param, partial(from_json_schema if strict else lenient_json_schema, schema))


def _of_outputs(outputs: StructuredOutputs) -> Iterator[Structure]:
    yield from _schema("structured_outputs.json", outputs.json_schema)
    yield from _given("structured_outputs.regex", outputs.regex, from_regex)
    yield from _given("structured_outputs.choice", outputs.choice, from_choice)
    yield from _given("structured_outputs.grammar", outputs.grammar, from_grammar)
    yield from _given("structured_outputs.json_object", outputs.json_object, _any_object)


def _given(
    param: str, value: Value | None, write: Callable[[Value, str], str]
) -> Iterator[Structure]:
    if value is not None:
        yield Structure(param, partial(write, value))


def _schema(param: str, schema: SchemaOrText | None) -> Iterator[Structure]:
    if schema is not None:
        yield Structure(param, partial(_from_schema, schema))


def _from_schema(schema: SchemaOrText, param: str) -> str:
    return from_json_schema(_parsed(schema, param) if isinstance(schema, str) else schema, param)


def _parsed(text: str, param: str) -> object:
    try:
        return parse_json(text.encode())
    except Refused as refusal:
        reason = str(refusal).replace("The body", "its text")
        raise refused(f"`{param}` must be a JSON Schema: {reason}", param) from refusal


def _any_object(is_set: Literal[True], param: str) -> str:
    return any_json_object(param)
