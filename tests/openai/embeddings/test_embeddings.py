"""Embeddings: every form of input and answer, in order, exact, and refused with the reason."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from openai.types import CreateEmbeddingResponse
from pydantic import TypeAdapter

from deployments.contract.outputs import Pooling, PoolParams
from deployments.contract.requests import GenerationRequest
from deployments.ingress.generation.choice_merge import MAX_ACTIVE_TOKENS, MIN_ACTIVE_TEXTS
from deployments.ingress.settings import IngressSettings
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import ScriptedEngine, never, pools, says
from tests.openai.pooling import (
    CLASSIFIES,
    EMBEDS,
    GENERATES,
    SIZE,
    asked,
    decoded,
    float32,
    known,
    numbers_of,
    vectors_of,
)
from tests.openai.serving import CHAT, HELLO, Socket, sdk, served
from tests.text.cards import card

EMBEDDINGS = "/v1/embeddings"
TOKENIZER = TextTokenizer(card())
MODEL = known(EMBEDS)


def ids(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text, True))


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("Hello world", [ids("Hello world")]),
        (["Hello", "world"], [ids("Hello"), ids("world")]),
        ([5, 6, 7], [(5, 6, 7)]),
        ([[5, 6], [7]], [(5, 6), (7,)]),
    ],
)
def test_every_form_of_input_is_embedded_in_its_order(given: object, prompts: Any) -> None:
    got = asked(EMBEDDINGS, {"input": given, "model": "tiny", "user": "me"}, MODEL)
    assert [request.prompt_ids for request in got.requests] == prompts
    body = TypeAdapter(CreateEmbeddingResponse).validate_python(got.json)
    assert [item.index for item in body.data] == list(range(len(prompts)))
    expected = [float32(numbers_of(request)) for request in got.requests]
    assert [item.embedding for item in body.data] == expected
    n_tokens = sum(map(len, prompts))
    assert (body.usage.prompt_tokens, body.usage.total_tokens) == (n_tokens, n_tokens)
    assert (body.object, body.model) == ("list", "tiny")


def test_base64_and_floats_are_the_same_numbers_to_the_bit() -> None:
    body = {"input": ["Hello", "how are you"]}
    plain = asked(EMBEDDINGS, body, MODEL).json["data"]
    packed = asked(EMBEDDINGS, {**body, "encoding_format": "base64"}, MODEL).json["data"]
    assert [decoded(item["embedding"]) for item in packed] == [item["embedding"] for item in plain]


def test_the_sdk_reads_them() -> None:
    async def ask() -> list[list[float]]:
        async with sdk(served(ScriptedEngine(pools(vectors_of), MODEL))) as client:
            answer = await client.embeddings.create(model="tiny", input=["Hello", "world"])
        return [item.embedding for item in answer.data]

    plain = asked(EMBEDDINGS, {"input": ["Hello", "world"]}, MODEL).json["data"]
    assert asyncio.run(ask()) == [item["embedding"] for item in plain]


@pytest.mark.parametrize(
    ("fields", "params"),
    [
        ({}, PoolParams()),
        ({"dimensions": 2}, PoolParams(dimensions=2)),
        ({"use_activation": False}, PoolParams(normalize=-1)),
        ({"use_activation": True}, PoolParams(normalize=2)),
        ({"pooling": "cls"}, PoolParams(pooling=Pooling.CLS)),
    ],
)
def test_what_a_vector_is_made_of_travels_with_each_text(
    fields: dict[str, object], params: PoolParams
) -> None:
    got = asked(EMBEDDINGS, {"input": ["Hello", "world"], **fields}, MODEL)
    assert [request.output for request in got.requests] == [params, params]
    assert {len(item["embedding"]) for item in got.json["data"]} == {params.dimensions or SIZE}


def test_a_prompt_of_the_model_goes_before_each_text() -> None:
    for fields in ({"prompt_name": "query"}, {"input_type": "query"}):
        got = asked(EMBEDDINGS, {"input": ["world"], **fields}, MODEL)
        assert [request.prompt_ids for request in got.requests] == [ids("Hello world")]
    got = asked(EMBEDDINGS, {"input": "world", "input_type": "document"}, MODEL)
    assert got.requests[0].prompt_ids == ids("how world")  # the model calls it "passage"
    unnamed = known(replace(EMBEDS, default_prompt="passage"))
    assert asked(EMBEDDINGS, {"input": "x"}, unnamed).requests[0].prompt_ids == ids("how x")
    plain = known(replace(EMBEDS, prompts=()))
    got = asked(EMBEDDINGS, {"input": "x", "input_type": "query"}, plain)
    assert got.requests[0].prompt_ids == ids("x")


def test_a_text_that_is_too_long_is_refused_with_both_numbers() -> None:
    error = asked(EMBEDDINGS, {"input": ["x", "x" * 40]}, MODEL).refusal()
    assert error["param"] == "input[1]"
    assert error["code"] == "context_length_exceeded"
    assert "32 tokens" in error["message"]
    assert "has 40" in error["message"]


@pytest.mark.parametrize(
    ("fields", "kept"),
    [
        ({"truncate_prompt_tokens": -1}, "a" * 8 + "b" * 24),
        ({"truncate_prompt_tokens": 9}, "a" * 8 + "b"),
        ({"truncate_prompt_tokens": 9, "truncation_side": "left"}, "b" + "c" * 8),
    ],
)
def test_on_request_it_is_cut(fields: dict[str, object], kept: str) -> None:
    letters = [TOKENIZER.encode(char, False)[0] for char in "a" * 8 + "b" * 30 + "c" * 8]
    got = asked(EMBEDDINGS, {"input": letters, **fields}, MODEL)
    assert got.requests[0].prompt_ids == tuple(TOKENIZER.encode(char, False)[0] for char in kept)
    assert got.json["usage"]["prompt_tokens"] == len(kept)


WRONG: list[tuple[dict[str, object], str]] = [
    ({"input": None}, "input"),
    ({"input": []}, "input"),
    ({"input": ""}, "input"),
    ({"input": ["x", ""]}, "input[1]"),
    ({"input": [[]]}, "input[0]"),
    ({"input": [1, "x"]}, "input[1]"),
    ({"input": {"text": "x"}}, "input"),
    ({"input": [10**6]}, "input"),
    ({"input": ["x"] * 8193}, "input"),
    ({"encoding_format": "hex"}, "encoding_format"),
    ({"dimensions": 0}, "dimensions"),
    ({"dimensions": SIZE + 1}, "dimensions"),
    ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
    ({"truncation_side": "left"}, "truncation_side"),
    ({"prompt_name": "poem"}, "prompt_name"),
    ({"prompt_name": "query", "input_type": "query"}, "prompt_name"),
    ({"prompt_name": "query", "input": [[5, 6]]}, "prompt_name"),
    ({"input_type": "query", "input": [5, 6]}, "input_type"),
    ({"pooling": "none"}, "pooling"),
    ({"pooling": "max"}, "pooling"),
    ({"embed_dtype": "float16"}, "embed_dtype"),
    ({"stream": True}, "stream"),
    ({"messages": []}, "messages"),
    ({"poem": 1}, "poem"),
]


@pytest.mark.parametrize(("fields", "param"), WRONG)
def test_what_is_wrong_is_named(fields: dict[str, object], param: str) -> None:
    error = asked(EMBEDDINGS, {"input": "Hello", **fields}, MODEL).refusal()
    assert error["param"] == param
    assert param.split("[")[0] in error["message"]


def test_a_model_with_a_vector_for_each_token_has_no_place_where_one_is_wanted() -> None:
    model = known(replace(EMBEDS, pooling=Pooling.TOKEN))
    for path, body in (
        (EMBEDDINGS, {"input": "x"}),
        ("/embed", {"inputs": "x"}),
        ("/pooling", {"input": "x", "task": "embed"}),
    ):
        assert asked(path, body, model).refusal()["param"] == "model"
    assert asked("/pooling", {"input": [5, 6]}, model).json["data"]


def test_an_answer_is_known_by_the_name_that_its_client_gave() -> None:
    got = asked(EMBEDDINGS, {"input": [[5], [6]], "request_id": "job-7"}, MODEL)
    assert got.json["id"] == "embd-job-7"
    assert len({request.request_id for request in got.requests}) == 2
    assert not any("job-7" in request.request_id for request in got.requests)


def test_a_generator_embeds_once_it_is_said_how() -> None:
    generator = known(GENERATES)
    error = asked(EMBEDDINGS, {"input": "Hello"}, generator).refusal()
    assert error["param"] == "pooling"
    assert "'tiny'" in error["message"]
    got = asked(EMBEDDINGS, {"input": "Hello", "pooling": "last"}, generator)
    assert got.requests[0].output == PoolParams(pooling=Pooling.LAST, normalize=2)
    set_so = known(replace(GENERATES, pooling=Pooling.MEAN))
    assert asked(EMBEDDINGS, {"input": "Hello"}, set_so).requests[0].output == PoolParams(
        normalize=2
    )


def test_models_say_what_they_can_do_instead() -> None:
    error = asked(EMBEDDINGS, {"input": "x"}, known(CLASSIFIES, "sorter")).refusal()
    assert (error["param"], error["type"]) == ("model", "invalid_request_error")
    assert error["message"] == "The model 'sorter' can't make embeddings: it classifies texts"
    error = asked(CHAT, HELLO, MODEL).refusal()
    assert error["message"] == "The model 'tiny' can't generate text: it makes embeddings"
    assert asked("/completion", {"prompt": "x"}, MODEL).refusal()["param"] == "model"
    assert asked(CHAT, HELLO, known(GENERATES), says("Hi")).json["choices"]


async def test_thousands_of_texts_leave_room_for_others_requests() -> None:
    most = 0

    def vectors(request: GenerationRequest) -> list[list[float]]:
        nonlocal most
        most = max(most, engine.running)
        return vectors_of(request)

    engine = ScriptedEngine(pools(vectors), known(replace(EMBEDS, max_input_tokens=400)))
    texts = [f"{index} " + "x" * 300 for index in range(500)]
    async with sdk(served(engine)) as client:
        answer = await client.embeddings.create(model="tiny", input=texts)
    assert len(answer.data) == len(texts)
    assert [item.index for item in answer.data] == list(range(len(texts)))
    expected = [
        float32(numbers_of(received)) for received in sorted(engine.requests, key=_index_of)
    ]
    assert [item.embedding for item in answer.data] == expected
    assert MIN_ACTIVE_TEXTS < most <= MAX_ACTIVE_TOKENS // 300


def _index_of(request: GenerationRequest) -> int:
    return int(request.request_id.rpartition("-")[2])


async def test_they_end_when_the_client_leaves() -> None:
    engine = ScriptedEngine(never(), MODEL)
    socket = Socket(EMBEDDINGS, {"input": ["x"] * 3})
    answering = asyncio.create_task(socket(served(engine)))
    for _ in range(3):
        await engine.starts.get()
    socket.leave()
    await answering
    assert engine.running == 0


def test_an_answer_counts_for_the_bytes_of_its_client() -> None:
    wide = known(replace(EMBEDS, embedding_size=1 << 20))
    settings = IngressSettings(body_budget=90 << 20)
    body = {"input": ["x"] * 4, "encoding_format": "base64"}
    error = asked(EMBEDDINGS, {"input": ["x"] * 4}, wide, settings=settings).refusal(413)
    assert error["code"] == "request_too_large"
    assert asked(EMBEDDINGS, body, wide, settings=settings).json["data"]
    wide = known(replace(EMBEDS, embedding_size=1 << 17))
    tokens = {"content": "x" * 30, "pooling": "none"}  # as large as with 30 texts
    assert asked("/embedding", tokens, wide, settings=settings).refusal(413)
    assert asked("/embedding", {**tokens, "dimensions": 4}, wide, settings=settings).json


def test_llama_servers_own_form_has_lists_of_vectors() -> None:
    paths = ("/embedding", "content"), ("/embeddings", "input"), (EMBEDDINGS, "content")
    for path, field in paths:
        got = asked(path, {field: ["Hello", [5, "world"], {"prompt_string": "x"}]}, MODEL)
        assert [request.prompt_ids for request in got.requests] == [
            ids("Hello"),
            (5, *TOKENIZER.encode("world", False)),
            ids("x"),
        ]
        assert [request.output for request in got.requests] == [PoolParams(normalize=2)] * 3
        expected = [float32(numbers_of(request)) for request in got.requests]
        assert got.json == [
            {"index": i, "embedding": [vector]} for i, vector in enumerate(expected)
        ]


def test_it_normalizes_as_it_is_told_and_has_a_vector_for_each_token() -> None:
    got = asked("/embedding", {"content": "Hello", "embd_normalize": 0}, MODEL)
    assert got.requests[0].output == PoolParams(normalize=0)
    got = asked("/embedding", {"content": [5, 6], "pooling": "none"}, MODEL)
    assert got.requests[0].output == PoolParams(pooling=Pooling.TOKEN, normalize=-1)
    assert got.json == [{"index": 0, "embedding": [float32([5 / 3, 1, 2, 3]), [2, 1, 2, 3]]}]
    error = asked("/embedding", {"content": [5, [6]]}, MODEL).refusal()
    assert error["param"] == "content"


def test_pooling_of_vllm() -> None:
    got = asked("/pooling", {"input": [5, 6], "task": "token_embed"}, MODEL)
    assert got.json["data"] == [
        {"object": "pooling", "index": 0, "data": [float32([5 / 3, 1, 2, 3]), [2, 1, 2, 3]]}
    ]
    body = {"input": ["Hello"], "task": "embed", "encoding_format": "base64"}
    got = asked("/v1/pooling", body, MODEL)
    assert decoded(got.json["data"][0]["data"]) == float32(numbers_of(got.requests[0]))
    logits = pools(lambda request: [[0.0, 0.0, 0.0]])
    got = asked("/pooling", {"input": "x", "task": "classify"}, known(CLASSIFIES), logits)
    assert got.json["data"][0]["data"] == pytest.approx([1 / 3] * 3)
    error = asked("/pooling", {"input": "x", "task": "embed", "pooling": "none"}, MODEL).refusal()
    assert error["param"] == "pooling"


def test_embed_of_text_embeddings_inference() -> None:
    got = asked("/embed", {"inputs": ["Hello", "world"]}, MODEL)
    assert got.json == [float32(numbers_of(request)) for request in got.requests]
    got = asked("/embed", {"inputs": "x" * 40, "truncate": True, "normalize": False}, MODEL)
    assert len(got.requests[0].prompt_ids) == 32
    assert got.requests[0].output == PoolParams(normalize=-1)
    assert asked("/embed", {"inputs": "x" * 40}, MODEL).refusal()["param"] == "inputs"


def test_the_defaults_of_text_embeddings_inference_may_be_sent() -> None:
    defaults = {"truncate": False, "truncation_direction": "Right", "normalize": True}
    got = asked("/embed", {"inputs": "Hello", **defaults}, MODEL)
    assert got.json == asked("/embed", {"inputs": "Hello"}, MODEL).json
    assert asked("/embed", {"inputs": "x" * 40, **defaults}, MODEL).refusal()["param"] == "inputs"
    left = {"truncation_direction": "Left"}
    assert asked("/embed", {"inputs": "Hello", **left}, MODEL).json == got.json
    both = {"inputs": "Hello", **left, "truncate_prompt_tokens": 5}
    assert asked("/embed", both, MODEL).refusal()["param"] == "truncation_direction"


def test_embed_of_cohere_cuts_what_is_too_long() -> None:
    body = {
        "model": "tiny",
        "texts": ["x" * 40, "world"],
        "input_type": "search_query",
        "embedding_types": ["float", "base64"],
    }
    got = asked("/v2/embed", body, MODEL)
    assert [len(request.prompt_ids) for request in got.requests] == [32, len(ids("Hello world"))]
    answer = got.json
    assert answer["texts"] == body["texts"]
    floats = [float32(numbers_of(request)) for request in got.requests]
    assert answer["embeddings"]["float"] == floats
    assert [decoded(vector) for vector in answer["embeddings"]["base64"]] == floats
    assert asked("/v2/embed", {**body, "truncate": "NONE"}, MODEL).refusal()["param"] == "texts[0]"
    thrice = {**body, "embedding_types": ["float", "base64", "float"]}
    assert asked("/v2/embed", thrice, MODEL).json["embeddings"] == answer["embeddings"]
    other = {**body, "embedding_types": ["float", "base64", "int8", "binary"]}
    assert asked("/v2/embed", other, MODEL).refusal()["param"] == "embedding_types[2]"
