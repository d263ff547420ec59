"""A request's adapters are those that its `model` or its `lora` names, in every protocol."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import httpx
import pytest

from deployments.contract.events import TokenEvent
from deployments.contract.outputs import AnswerKinds, Pooling
from deployments.contract.requests import GenerationRequest
from deployments.contract.served_adapters import AdapterTable, ServedAdapter
from kv.content import Adapter
from tests.ingress.clusters import CountingCluster
from tests.ingress.edge import application
from tests.ingress.engines import pools, says
from tests.openai.serving import http
from tests.text.cards import card

POLITE = ServedAdapter(id=0, name="polite", path="/p", digest=b"p", rank=4)
TERSE = ServedAdapter(id=3, name="terse", path="/t", digest=b"t", rank=8, scale=0.5)
TABLE = AdapterTable.from_adapters([POLITE, TERSE])
AS_NAMED = {"polite": (Adapter("/p", b"p", 1.0),), "tiny:terse": (Adapter("/t", b"t", 0.5),)}
USER = {"role": "user", "content": "Hello"}
MESSAGES: dict[str, Any] = {"messages": [USER], "max_tokens": 8}
PROMPT: dict[str, Any] = {"prompt": "Hello", "max_tokens": 8}
QUESTION = {"instructions": "The text is rude"}
PATHS: list[tuple[str, dict[str, Any]]] = [
    ("/v1/chat/completions", MESSAGES),
    ("/v1/completions", PROMPT),
    ("/v1/responses", {"input": "Hello"}),
    ("/v1/messages", MESSAGES),
    ("/completion", PROMPT),
    ("/chat/completions", MESSAGES),
    ("/responses", {"input": "Hello"}),
    ("/v1/embeddings", {"input": "Hello"}),
    ("/embedding", {"content": "Hello"}),
    ("/embed", {"inputs": "Hello"}),
    ("/v1/decisions", {"input": "Hello", "questions": [{**QUESTION, "type": "predicate"}]}),
    ("/v1/systemone", {"state": "Hello", "questions": {"rude": {**QUESTION, "type": "noul"}}}),
]
WITH_LORA = [PATHS[0], PATHS[1], PATHS[4], PATHS[5], *PATHS[7:]]


def answers(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
    script = says("Hi") if request.output is None else pools(lambda _: [[-1.0, -2.0]])
    return script(request)


def send(
    method: str, path: str, table: AdapterTable = TABLE, **sent: Any
) -> tuple[httpx.Response, CountingCluster]:
    async def asks() -> tuple[httpx.Response, CountingCluster]:
        kinds = AnswerKinds(can_embed=True, pooling=Pooling.LAST, embedding_size=2)
        engine = CountingCluster(answers, card(answers=kinds, context_length=2048))
        engine.adapters = table
        async with http(application(path, engine)) as client:
            return await client.request(method, path, **sent), engine

    return asyncio.run(asks())


def heard(path: str, body: dict[str, Any], table: AdapterTable = TABLE) -> GenerationRequest:
    response, engine = send("POST", path, table, json=body)
    assert response.status_code == 200, response.text
    answer = response.json()
    if isinstance(answer, dict):  # lists of vectors name no model
        assert answer["model"] == body.get("model", "tiny")
    return engine.requests[0]


def error_of(path: str, body: dict[str, Any], status: int) -> str:
    response, engine = send("POST", path, json=body)
    assert response.status_code == status, response.text
    assert not engine.requests
    return json.dumps(response.json()["error"])


@pytest.mark.parametrize("model", ["polite", "tiny:terse"])
@pytest.mark.parametrize(("path", "body"), PATHS)
def test_a_model_that_names_an_adapter_gets_it_and_is_named_as_asked(
    path: str, body: dict[str, Any], model: str
) -> None:
    assert heard(path, body | {"model": model}).content.adapters == AS_NAMED[model]
    assert heard(path, body | {"model": "tiny"}).content.adapters == ()


@pytest.mark.parametrize("model", ["tiny:rude", "rude", "other:polite"])
@pytest.mark.parametrize(("path", "body"), PATHS)
def test_an_adapter_that_is_not_there_is_a_404_that_names_it(
    path: str, body: dict[str, Any], model: str
) -> None:
    assert model in error_of(path, body | {"model": model}, 404)


@pytest.mark.parametrize(("path", "body"), WITH_LORA)
def test_a_request_chooses_adapters_by_their_ids(path: str, body: dict[str, Any]) -> None:
    lora = [{"id": 3, "scale": -2}, {"id": 0, "scale": 0.5}]
    chosen = heard(path, body | {"lora": lora}).content.adapters
    assert chosen == (Adapter("/p", b"p", 0.5), Adapter("/t", b"t", -2.0))
    zero = [{"id": 3, "scale": 0}]
    assert heard(path, body | {"lora": zero}).content == heard(path, body).content


@pytest.mark.parametrize(("path", "body"), PATHS)
def test_a_request_that_chooses_nothing_gets_the_default_scales(
    path: str, body: dict[str, Any]
) -> None:
    table = AdapterTable.from_adapters([POLITE, replace(TERSE, default_scale=2.0)])
    asked = heard(path, body | {"model": "tiny"}, table)
    assert asked.content.adapters == (Adapter("/t", b"t", 2.0),)
    asked = heard(path, body | {"model": "polite"}, table)
    assert asked.content.adapters == AS_NAMED["polite"]


@pytest.mark.parametrize(("path", "body"), WITH_LORA)
def test_an_empty_choice_is_none_of_the_adapters(path: str, body: dict[str, Any]) -> None:
    table = AdapterTable.from_adapters([replace(POLITE, default_scale=2.0)])
    assert heard(path, body | {"lora": []}, table).content.adapters == ()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"lora": [{"id": 1, "scale": 1}]}, "lora[0].id"),
        ({"lora": [{"id": 0, "scale": 1}, {"id": 0, "scale": 1}]}, "lora[1].id"),
        ({"lora": [{"id": 0}]}, "lora[0].scale"),
        ({"lora": [{"id": 0, "scale": 1e6}]}, "lora[0].scale"),
        ({"lora": [{"id": True, "scale": 1}]}, "lora[0].id"),
        ({"lora": [{"id": 0, "scale": 1, "name": "x"}]}, "lora[0].name"),
        ({"lora": "polite"}, "lora"),
        ({"lora": [{"id": 3, "scale": 1}], "model": "polite"}, "lora"),
    ],
)
@pytest.mark.parametrize(("path", "body"), WITH_LORA)
def test_a_choice_that_means_nothing_is_refused(
    path: str, body: dict[str, Any], fields: dict[str, Any], param: str
) -> None:
    assert f"`{param}`" in error_of(path, body | fields, 400)


def test_a_request_has_few_adapters() -> None:
    table = AdapterTable.from_adapters([replace(POLITE, id=n, name=f"a{n}") for n in range(17)])
    lora = [{"id": n, "scale": 1} for n in range(17)]
    assert len(heard("/completion", PROMPT | {"lora": lora[1:]}, table).content.adapters) == 16
    response, _ = send("POST", "/completion", table, json=PROMPT | {"lora": lora})
    assert response.status_code == 400
    assert "`lora`" in response.text


def test_a_conversation_goes_on_where_its_adapter_was() -> None:
    said = MESSAGES | {"prompt_cache_key": "talk"}
    sessions = {
        heard("/v1/chat/completions", said | {"model": model}).session
        for model in ("tiny", "polite", "tiny:polite", "terse")
    }
    assert len(sessions) == 3
    assert heard("/v1/chat/completions", MESSAGES | {"model": "polite"}).session == ""


def test_completions_tell_which_adapters_they_have() -> None:
    response, _ = send("POST", "/completion", json=PROMPT | {"model": "terse"})
    assert response.json()["generation_settings"]["lora"] == [{"id": 3, "scale": 0.5}]


def test_lists_of_models_have_adapters_behind_their_model() -> None:
    listed = send("GET", "/v1/models")[0].json()["data"]
    assert [(entry["id"], entry["parent"], entry["root"]) for entry in listed] == [
        ("tiny", None, "tiny"),
        ("polite", "tiny", "/p"),
        ("terse", "tiny", "/t"),
    ]
    assert listed[1]["max_model_len"] == listed[0]["max_model_len"]
    for name in ("polite", "tiny:polite"):
        assert send("GET", f"/v1/models/{name}")[0].json() == listed[1]
    assert send("GET", "/v1/models/rude")[0].status_code == 404
    anthropics = send("GET", "/v1/models", headers={"anthropic-version": "2023-06-01"})[0].json()
    assert [entry["id"] for entry in anthropics["data"]] == ["tiny", "polite", "terse"]
    body = send("GET", "/models")[0].json()
    assert [entry["name"] for entry in body["models"]] == ["tiny", "polite", "terse"]
    assert [entry["aliases"] for entry in body["data"]][1] == ["polite", "tiny:polite"]


@pytest.mark.parametrize("path", ["/props", "/slots", "/tokenizer_info"])
def test_an_adapters_name_is_its_models_where_adapters_make_no_difference(path: str) -> None:
    plain, adapted = (send("GET", f"{path}?model={name}")[0] for name in ("tiny", "polite"))
    assert (plain.status_code, adapted.json()) == (200, plain.json())
    assert send("GET", f"{path}?model=rude")[0].status_code == 404


def test_a_models_adapters_and_their_default_scales_are_listed() -> None:
    table = AdapterTable.from_adapters([POLITE, replace(TERSE, default_scale=2.0)])
    listed = send("GET", "/lora-adapters", table)[0].json()
    assert [(entry["id"], entry["path"], entry["scale"]) for entry in listed] == [
        (0, "/p", 0),
        (3, "/t", 2),
    ]
    assert send("GET", "/lora-adapters?model=rude", table)[0].status_code == 404


def test_default_scales_are_set_for_a_model() -> None:
    scales = [{"id": 3, "scale": 0.5}, {"id": 0, "scale": 1}]
    response, engine = send("POST", "/lora-adapters?model=tiny", json=scales)
    assert response.json() == {"success": True}
    assert engine.adapter_commands == [("scale", "tiny", [(3, 0.5), (0, 1.0)])]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "array"),
        ([1], "`[0]`"),
        ([{"id": 0}], "`[0].scale`"),
        ([{"id": 0, "scale": 1}, {"id": 0, "scale": 1}], "`[1].id`"),
        ([{"id": 0, "scale": 200}], "`[0].scale`"),
        ([{"id": n, "scale": 1} for n in range(600)], "at most"),
    ],
)
def test_default_scales_that_mean_nothing_are_refused(body: object, words: str) -> None:
    response, engine = send("POST", "/lora-adapters", json=body)
    assert response.status_code == 400
    assert words in response.json()["error"]["message"]
    assert not engine.adapter_commands


def test_adapters_are_loaded_and_unloaded_as_vllms_clients_do() -> None:
    body = {"lora_name": "x", "lora_path": "folder"}
    response, engine = send("POST", "/v1/load_lora_adapter", json=body)
    assert response.text == "Success: LoRA adapter 'x' added successfully."
    more = body | {"base_model_name": "tiny", "load_inplace": True}
    assert send("POST", "/v1/load_lora_adapter", json=more)[1].adapter_commands == [
        ("load", "x", "folder", "tiny", True)
    ]
    assert engine.adapter_commands == [("load", "x", "folder", None, False)]
    response, engine = send("POST", "/v1/unload_lora_adapter", json={"lora_name": "x"})
    assert response.text == "Success: LoRA adapter 'x' removed successfully."
    assert engine.adapter_commands == [("unload", "x")]
    for missing in ("lora_name", "lora_path"):
        less = {name: value for name, value in body.items() if name != missing}
        assert missing in error_of("/v1/load_lora_adapter", less, 400)
