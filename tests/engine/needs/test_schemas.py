"""Whatever JSON Schema is accepted, a model that knows nothing at all answers as it says."""

import json
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis_jsonschema import from_schema
from jsonschema import Draft202012Validator
from transformers import LlamaConfig, LlamaForCausalLM

from deployments.contract.errors import Refused
from deployments.contract.events import FinishReason
from deployments.contract.requests import SamplingParams
from deployments.text.grammar.grammar import any_json_object, from_json_schema, lark_json
from tests.checkpoints import byte_tokenizer
from tests.effort import tries
from tests.engine.drive import engine, random_ids, request, roomy

Schema = dict[str, Any]

N_SCHEMAS = tries(40, 200)
# Left to chance a string or an array goes on for a hundred tokens: so their ends are preferred.
ENDS = tuple((token_id, 9.0) for token_id in byte_tokenizer().encode('"]}'))


def meta(kind: str, **keywords: Schema) -> st.SearchStrategy[Schema]:
    """Schemas of one type, whose keywords have values by schemas of their own."""
    values: dict[str, st.SearchStrategy[Any]] = {
        name: from_schema(schema) for name, schema in keywords.items()
    }
    optional = {**values, "title": st.text(max_size=5)}
    return st.fixed_dictionaries({"type": st.just(kind)}, optional=optional)


def numbers(kind: str) -> st.SearchStrategy[Schema]:
    low, high = ({"type": kind, "minimum": a, "maximum": a + 90} for a in (-100, 0))
    return meta(kind, minimum=low, exclusiveMaximum=high, multipleOf={"enum": [1, 2, 7]})


VALUE: Schema = {
    "anyOf": [{"type": ["null", "boolean", "integer"]}, {"type": "string", "maxLength": 6}]
}
LEAVES: tuple[st.SearchStrategy[object], ...] = (
    st.sampled_from([{}, True]),
    meta("null"),
    meta("boolean"),
    numbers("integer"),
    numbers("number"),
    meta("string", minLength={"enum": [0, 1, 5]}, maxLength={"enum": [5, 9]}),
    meta("string", pattern={"enum": ["^[a-c]+$", "x.?y", "^(é|\\d{2}){1,3}$", "^\\w{2}-\\w*$"]}),
    meta("string", format={"enum": ["date-time", "date", "time", "uuid", "ipv4", "email"]}),
    st.fixed_dictionaries({"enum": st.lists(from_schema(VALUE), min_size=1, max_size=4)}),
    st.fixed_dictionaries({"const": from_schema(VALUE)}),
)


@st.composite
def arrays(draw: st.DrawFn, items: st.SearchStrategy[object]) -> dict[str, object]:
    schema = draw(meta("array", minItems={"enum": [0, 1, 2]}, maxItems={"enum": [2, 3]}))
    schema["items"] = draw(items)
    if draw(st.booleans()):
        schema["prefixItems"] = draw(st.lists(items, min_size=1, max_size=2))
    return schema


@st.composite
def objects(draw: st.DrawFn, values: st.SearchStrategy[object]) -> dict[str, object]:
    properties = draw(st.dictionaries(st.text(max_size=6), values, min_size=1, max_size=4))
    extra = draw(st.one_of(st.just(False), values))
    names = [*properties] if extra is False else [*properties, "id"]
    return {
        "type": "object",
        "properties": properties,
        "required": draw(st.lists(st.sampled_from(names), unique=True)),
        "additionalProperties": extra,
    }


def unions(schemas: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    several = st.lists(schemas, min_size=1, max_size=3)
    return st.one_of(
        st.builds(lambda some: {"anyOf": some}, several),
        st.builds(lambda some: {"oneOf": some}, several),
        st.builds(lambda one: {"allOf": [one, {"description": "the same"}]}, schemas),
    )


parts: st.SearchStrategy[object] = st.recursive(
    st.one_of(*LEAVES),
    lambda parts: st.one_of(arrays(parts), objects(parts), objects(parts), unions(parts)),
    max_leaves=8,
)
LIST = {
    "type": "object",
    "properties": {"v": {"$ref": "#/$defs/v"}, "next": {"$ref": "#"}},
    "required": ["v"],
    "additionalProperties": False,
}
schemas: st.SearchStrategy[Any] = st.one_of(
    parts, st.builds(lambda part: {"$defs": {"v": part}, **LIST}, parts)
)


def some_schemas() -> list[Any]:
    found: list[Any] = []

    @settings(
        max_examples=2 * N_SCHEMAS,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(schemas)
    def collect(schema: Any) -> None:
        found.append(schema)

    collect()
    return found


def grammar_of(schema: object) -> str | None:
    try:
        return from_json_schema(schema, "schema")
    except Refused as refused:
        if refused.error.param != "schema":
            raise
        return None


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(byte_tokenizer()),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=2048,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
    )
    return LlamaForCausalLM(config).float().eval()


def answers(model: LlamaForCausalLM, grammars: list[str]) -> list[str | None]:
    """Returns the text that is said under each grammar, None where it was cut."""
    tokenizer = byte_tokenizer()
    requests = [
        request(
            f"r{i}",
            random_ids(5, seed=i),
            SamplingParams(temperature=1, seed=i, logit_bias=ENDS),
            max_tokens=900,
            grammar=grammar,
        )
        for i, grammar in enumerate(grammars)
    ]
    limits = roomy(n_pages=8192, max_running=32)
    source = tokenizer.backend_tokenizer.to_str
    with engine(model=model, limits=limits, tokenizer_json=source) as running:
        outcomes = running.run(*requests)
    assert [outcome.error for outcome in outcomes] == [None] * len(outcomes)
    return [
        tokenizer.decode(outcome.token_ids) if outcome.finish_reason is FinishReason.STOP else None
        for outcome in outcomes
    ]


def test_random_schemas_get_answers_that_fit_them(model: LlamaForCausalLM) -> None:
    found = some_schemas()
    grammars = [grammar_of(schema) for schema in found]
    accepted = [
        (schema, grammar) for schema, grammar in zip(found, grammars, strict=True) if grammar
    ]
    assert len(accepted) > 0.7 * len(found)
    texts = answers(model, [grammar for _, grammar in accepted])
    whole = [(schema, text) for (schema, _), text in zip(accepted, texts, strict=True) if text]
    assert len(whole) >= max(N_SCHEMAS, 0.8 * len(accepted))
    for schema, text in whole:
        Draft202012Validator(schema).validate(json.loads(text))


def test_any_object_is_an_object(model: LlamaForCausalLM) -> None:
    texts = [text for text in answers(model, [any_json_object("format")] * 5) if text]
    assert texts
    assert all(isinstance(json.loads(text), dict) for text in texts)


def test_a_schema_stands_within_another_grammar(model: LlamaForCausalLM) -> None:
    schema = {
        "type": "object",
        "properties": {"//# x": {"enum": ["a\n}", 2]}},
        "required": ["//# x"],
    }
    lark = f'start: "<call>" body "</call>"\nbody: {lark_json(schema, "tools")}'
    (text,) = answers(model, [json.dumps({"grammars": [{"lark_grammar": lark}]})])
    assert text is not None
    body = text.removeprefix("<call>").removesuffix("</call>")
    Draft202012Validator(schema).validate(json.loads(body))
