"""Structured output: every field for it gives the engine one grammar."""

import asyncio
import json
from typing import Any

import pytest

from deployments.text.grammar.grammar import (
    any_json_object,
    from_choice,
    from_gbnf,
    from_json_schema,
    from_lark,
    from_regex,
    lenient_json_schema,
)
from tests.ingress.engines import ScriptedEngine, says
from tests.ingress.protocols.chats import plain
from tests.ingress.protocols.completions import COMPLETIONS
from tests.openai.chat.chatting import asked, refused, whole
from tests.openai.serving import CHAT, HELLO, post

SCHEMA: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "integer"}}}
UNIQUE: dict[str, Any] = {"type": "array", "items": SCHEMA, "uniqueItems": True}


def named(schema: object, **more: object) -> dict[str, Any]:
    form = {"name": "x", "schema": schema, **more}
    return {"response_format": {"type": "json_schema", "json_schema": form}}


GBNF = 'root ::= "a" | "b"'
LARK = 'start: "a" | "b"'
OF_SCHEMA = from_json_schema(SCHEMA, "p")
FORMS: list[tuple[dict[str, Any], str]] = [
    ({"response_format": {"type": "text"}}, ""),
    ({"response_format": {"type": "json_object"}}, any_json_object("p")),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, OF_SCHEMA),
    (named(SCHEMA, strict=True, description="d"), OF_SCHEMA),
    (named(SCHEMA), OF_SCHEMA),
    (named(UNIQUE), lenient_json_schema(UNIQUE, "p")),
    (named(UNIQUE, strict=False), lenient_json_schema(UNIQUE, "p")),
    (named(None), any_json_object("p")),
    ({"response_format": {"type": "json_object", "schema": {}}}, any_json_object("p")),
    (
        {"response_format": {"type": "json_object", "schema": UNIQUE}},
        lenient_json_schema(UNIQUE, "p"),
    ),
    ({"structured_outputs": {"json": SCHEMA}}, OF_SCHEMA),
    ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, OF_SCHEMA),
    ({"structured_outputs": {"regex": "a+"}}, from_regex("a+", "p")),
    ({"structured_outputs": {"choice": ["a", "b"]}}, from_choice(["a", "b"], "p")),
    ({"structured_outputs": {"grammar": GBNF}}, from_gbnf(GBNF, "p")),
    ({"structured_outputs": {"grammar": LARK}}, from_lark(LARK, "p")),
    ({"structured_outputs": {"json_object": True}}, any_json_object("p")),
    ({"json_schema": SCHEMA}, OF_SCHEMA),
    ({"regex": "a+"}, from_regex("a+", "p")),
    ({"choice": ["a", "b"]}, from_choice(["a", "b"], "p")),
    ({"grammar": GBNF}, from_gbnf(GBNF, "p")),
    ({"guided_json": SCHEMA}, OF_SCHEMA),
    ({"guided_json": json.dumps(SCHEMA)}, OF_SCHEMA),
    ({"guided_regex": "a+"}, from_regex("a+", "p")),
    ({"guided_choice": ["a", "b"]}, from_choice(["a", "b"], "p")),
    ({"guided_grammar": LARK, "guided_decoding_backend": "guidance"}, from_lark(LARK, "p")),
]


def rules(grammar: str) -> list[dict[str, object]]:
    """Returns the parts of a grammar without their names."""
    parts = json.loads(grammar)["grammars"] if grammar else []
    return [{name: part[name] for name in part if name != "name"} for part in parts]


@pytest.mark.parametrize(("fields", "grammar"), FORMS)
def test_every_form_reaches_the_engine(fields: dict[str, Any], grammar: str) -> None:
    [request] = asked(fields)
    assert rules(request.grammar) == rules(grammar)
    [request] = COMPLETIONS.asked(**fields)
    assert request.grammar == grammar


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"regex": "a", "choice": ["a"]}, "choice"),
        ({"grammar": GBNF, "response_format": {"type": "json_object"}}, "grammar"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs.choice"),
        ({"guided_json": SCHEMA, "json_schema": SCHEMA}, "guided_json"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"structured_outputs": {"json": 5}}, "structured_outputs.json"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}}}},
            "response_format.json_schema.name",
        ),
        (named({"type": "thing"}), "response_format.json_schema.schema"),
        (named(UNIQUE, strict=True), "response_format.json_schema.schema"),
        ({"guided_json": UNIQUE}, "guided_json"),
        ({"guided_json": json.dumps(UNIQUE)}, "guided_json"),
        ({"guided_json": "{"}, "guided_json"),
        ({"json_schema": {"type": "object", "minProperties": 9}}, "json_schema"),
        ({"json_schema": "{}"}, "json_schema"),
        ({"regex": "("}, "regex"),
        ({"regex": 5}, "regex"),
        ({"choice": []}, "choice"),
        ({"choice": ["a", 1]}, "choice[1]"),
        ({"grammar": "root ::= ("}, "grammar"),
        ({"grammar": "start: nowhere"}, "grammar"),
        ({"grammar": ""}, "grammar"),
        ({"guided_choice": [1]}, "guided_choice[0]"),
        ({"guided_grammar": "?"}, "guided_grammar"),
        ({"guided_decoding_backend": "outlines"}, "guided_decoding_backend"),
    ],
)
def test_a_form_that_can_not_be_honoured_is_named(fields: dict[str, Any], param: str) -> None:
    error = refused(**fields)
    assert error["param"] == param
    assert error["message"].count(f"`{param}`") == 1


async def test_a_grammar_is_made_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its check takes up to seconds, during which the others' tokens must flow."""
    threads: list[object] = []
    to_thread = asyncio.to_thread

    async def watched(work: Any, *arguments: Any) -> Any:
        threads.append(work)
        return await to_thread(work, *arguments)

    monkeypatch.setattr(asyncio, "to_thread", watched)
    engine = ScriptedEngine(says("x"))
    await post(engine, CHAT, HELLO)  # loads the tokenizer of this application
    threads.clear()
    await post(engine, CHAT, {**HELLO, "regex": "a+"})
    assert (len(threads), len(engine.requests)) == (1, 2)


def test_an_answer_in_a_form_is_content() -> None:
    [choice] = plain(whole(says('{"a": 1}'), response_format={"type": "json_object"}))
    assert choice["message"]["content"] == '{"a": 1}'
