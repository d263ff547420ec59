"""The `nvext` object: the requests that the engine gets, and the annotations of answers."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from deployments.contract.requests import GenerationRequest
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import ScriptedEngine, says
from tests.openai.chat.chatting import asked, refused, streamed, whole
from tests.openai.serving import CHAT, COMPLETIONS, HELLO, http, post, sdk, served
from tests.text.cards import card

TOKENIZER = TextTokenizer(card())
MESSAGES: Any = [{"role": "user", "content": "Hello"}]
ANNOTATIONS = ["timing", "request_id", "token_ids", "formatted_prompt"]
EXTRA = ["timing", "prompt_token_ids", "completion_token_ids", "stop_reason"]


def request_with(nvext: dict[str, Any], **fields: object) -> GenerationRequest:
    [request] = asked({"nvext": nvext, **fields})
    return request


def test_the_first_generations_fields_reach_the_engine() -> None:
    request = request_with(
        {"ignore_eos": True, "top_k": 40, "repetition_penalty": 1.1}, temperature=0.5
    )
    assert request.ignore_eos
    assert request.sampling.top_k == 40
    assert request.sampling.repetition_penalty == 1.1
    assert request.sampling.temperature == 0.5


def test_minus_one_keeps_all_tokens() -> None:
    assert request_with({"top_k": -1}).sampling.top_k == 0


@pytest.mark.parametrize("name", ["greed_sampling", "greedy_sampling"])
def test_greedy_is_greedy_whatever_the_temperature(name: str) -> None:
    assert request_with({name: True}, temperature=1.5).sampling.temperature == 0
    assert request_with({name: False}, temperature=1.5).sampling.temperature == 1.5


def test_the_later_generations_fields_reach_the_engine() -> None:
    request = request_with({"cache_salt": "tenant", "agent_hints": {"priority": 7}})
    assert request.content.salt == "tenant"
    assert request.own_priority == -7, "Dynamo's highest is our lowest: both run first"
    assert request_with({"cache_salt": ""}, cache_salt="own").content.salt == "own"


def test_what_is_said_twice_alike_is_said_once() -> None:
    request = request_with({"top_k": 5, "ignore_eos": True}, top_k=5, ignore_eos=True)
    assert request.sampling.top_k == 5


def test_a_raw_prompt_is_the_messages_and_nothing_else() -> None:
    messages = [{"role": "system", "content": "Be "}, {"role": "user", "content": "brief"}]
    request = request_with({"use_raw_prompt": True}, messages=messages)
    assert list(request.prompt_ids) == TOKENIZER.encode("Be brief", True)
    [request] = asked({"nvext": {"use_raw_prompt": True}}, chat_template=None)
    assert list(request.prompt_ids) == TOKENIZER.encode("Hello", True)
    assert plain_text(nvext={"use_raw_prompt": True}, regex="<think>a") == "<think>a</think>b"


def plain_text(**fields: object) -> object:
    body = whole(says("<think>a</think>b"), **fields)
    return body["choices"][0]["message"]["content"]


def test_a_prompt_of_tokens_takes_the_place_of_the_messages() -> None:
    assert request_with({"token_data": [5, 6, 7]}).prompt_ids == (5, 6, 7)
    body = {"prompt": "Hi", "nvext": {"token_data": [5, 6, 7]}, "echo": True}
    completed = ask(COMPLETIONS, body).json()
    assert completed["usage"]["prompt_tokens"] == 3


def ask(path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> httpx.Response:
    async def asks() -> httpx.Response:
        async with http(served(ScriptedEngine(says("ab")))) as client:
            return await client.post(path, json=body, headers=headers)

    response = asyncio.run(asks())
    assert response.status_code == 200, response.text
    return response


def events_of(response: httpx.Response) -> list[tuple[str, str]]:
    """Each frame as the name of its event and what follows, in order."""
    frames = response.text.removesuffix("\n\n").split("\n\n")
    lines = [frame.split("\n") for frame in frames]
    return [(parts[0], parts[1]) if len(parts) == 3 else ("", parts[0]) for parts in lines]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_annotations_stand_around_the_chunks_in_comments(path: str) -> None:
    asks = HELLO if path == CHAT else {"prompt": "Hello"}
    fields = {"stream": True, "nvext": {"annotations": ANNOTATIONS, "extra_fields": EXTRA}}
    response = ask(path, {**asks, **fields}, {"x-request-id": "my-own"})
    names, texts = zip(*events_of(response), strict=True)
    assert names[:3] == ("event: formatted_prompt", "event: token_ids", "event: request_id")
    assert set(names[3:-2]) == {""}
    assert (names[-2], texts[-1]) == ("event: timing", "data: [DONE]")
    assert all(text.startswith(": ") for text in (*texts[:3], texts[-2]))
    prompt, ids, request_id, timing = (json.loads(text[2:]) for text in (*texts[:3], texts[-2]))
    assert json.loads(ids) == TOKENIZER.encode(prompt, False)
    assert prompt.count("Hello") == 1
    assert request_id == "my-own" == response.headers["x-request-id"]
    told = json.loads(timing)
    assert 0 <= told["ttft_ms"] <= told["total_time_ms"]


def test_the_sdk_reads_a_stream_with_annotations() -> None:
    nvext = {"annotations": ANNOTATIONS}

    async def asks() -> tuple[str, str | None, str]:
        async with sdk(served(ScriptedEngine(says("ab")))) as client:
            chats, completions = client.chat.completions, client.completions
            manager = chats.stream(model="tiny", messages=MESSAGES, extra_body={"nvext": nvext})
            async with manager as events:
                final = await events.get_final_completion()
            asked = {"stream": True, "nvext": nvext}
            told = chats.create(model="tiny", messages=MESSAGES, stream=True, extra_body=asked)
            chat = [chunk.choices[0].delta.content or "" async for chunk in await told]
            legacy = completions.create(model="tiny", prompt="x", stream=True, extra_body=asked)
            text = [chunk.choices[0].text async for chunk in await legacy]
            return "".join(chat), final.choices[0].message.content, "".join(text)

    assert asyncio.run(asks()) == ("ab", "ab", "ab")


def test_the_annotation_has_the_id_that_the_server_made() -> None:
    response = ask(CHAT, {**HELLO, "stream": True, "nvext": {"annotations": ["request_id"]}})
    name, text = events_of(response)[0]
    assert (name, json.loads(text[2:])) == ("event: request_id", response.headers["x-request-id"])


def test_each_prompt_of_a_completion_has_its_annotations() -> None:
    nvext = {"annotations": ["token_ids"]}
    response = ask(COMPLETIONS, {"prompt": [[1, 2], [3]], "stream": True, "nvext": nvext})
    assert [json.loads(text[2:]) for _, text in events_of(response)[:2]] == ["[1,2]", "[3]"]


def test_a_unary_answer_has_no_annotations() -> None:
    body = whole(says("ab"), nvext={"annotations": ANNOTATIONS})
    assert body.keys() == whole(says("ab")).keys()


def test_extra_fields_come_with_the_last_choice_and_fold() -> None:
    body = whole(says("ab"), stop=["b"], nvext={"extra_fields": EXTRA})
    told = body["nvext"]
    chunks = streamed(says("ab"), stop=["b"], nvext={"extra_fields": EXTRA})
    assert all("nvext" not in chunk for chunk in chunks[:-1])
    for name in EXTRA[1:]:
        assert chunks[-1]["nvext"][name] == told[name]
    assert len(told["prompt_token_ids"]) == body["usage"]["prompt_tokens"]
    assert len(told["completion_token_ids"]) == body["usage"]["completion_tokens"]
    assert told["stop_reason"] == "b"
    assert told["timing"].keys() == {"request_received_ms", "total_time_ms", "kv_hit_rate"}


def test_several_choices_have_the_fields_that_they_share() -> None:
    fields = {"n": 2, "nvext": {"extra_fields": ["timing", "prompt_token_ids"]}}
    chunks = streamed(says("a", "much longer"), **fields)
    assert [number for number, chunk in enumerate(chunks) if "nvext" in chunk] == [len(chunks) - 1]
    assert whole(says("a", "b"), **fields)["nvext"]["prompt_token_ids"]


async def test_a_tenants_header_goes_before_every_salt() -> None:
    engine = ScriptedEngine(says("x"))
    async with http(served(engine)) as client:
        headers = {"x-tenant-id": "first"}
        await client.post(CHAT, json={**HELLO, "cache_salt": "second"}, headers=headers)
        await client.post(CHAT, json={**HELLO, "cache_prompt": False}, headers=headers)
        refusal = await client.post(CHAT, json=HELLO, headers={"x-tenant-id": "x" * 1025})
    assert (refusal.status_code, len(engine.requests)) == (400, 2)
    tenants, nobodys = [request.content.salt for request in engine.requests]
    assert tenants == "first"
    assert nobodys not in {"", "first"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"nvext": {"top_k": 4}, "top_k": 5}, "nvext.top_k"),
        ({"nvext": {"ignore_eos": False}, "ignore_eos": True}, "nvext.ignore_eos"),
        ({"nvext": {"cache_salt": "a"}, "cache_salt": "b"}, "nvext.cache_salt"),
        ({"nvext": {"agent_hints": {"priority": 1}}, "priority": 1}, "nvext.agent_hints.priority"),
        ({"nvext": {"extra_fields": ["stop_reason"]}, "n": 2}, "nvext.extra_fields"),
        (
            {"nvext": {"use_raw_prompt": True}, "continue_final_message": True},
            "nvext.use_raw_prompt",
        ),
        ({"nvext": {"use_raw_prompt": True}, "reasoning_effort": "low"}, "nvext.use_raw_prompt"),
        ({"nvext": {"use_raw_prompt": True}, "reasoning_control": True}, "nvext.use_raw_prompt"),
        (
            {
                "nvext": {"use_raw_prompt": True},
                "tools": [{"type": "function", "function": {"name": "f"}}],
            },
            "nvext.use_raw_prompt",
        ),
        (
            {"nvext": {"use_raw_prompt": True}, "messages": [{"role": "user", "content": ""}]},
            "messages",
        ),
    ],
)
def test_extensions_that_clash_with_the_request_are_named(
    fields: dict[str, Any], param: str
) -> None:
    assert refused(**fields)["param"] == param


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"nvext": {"max_thinking_tokens": 4}}, "nvext.max_thinking_tokens"),
        ({"nvext": {"token_data": [1]}, "prompt": ["a", "b"]}, "nvext.token_data"),
        ({"nvext": {"token_data": [1]}, "suffix": "x"}, "nvext.token_data"),
        ({"nvext": {"token_data": [10**6]}}, "nvext.token_data"),
        (
            {"nvext": {"extra_fields": ["prompt_token_ids"]}, "prompt": ["a", "b"]},
            "nvext.extra_fields",
        ),
    ],
)
async def test_completions_name_what_they_can_not_do(fields: dict[str, Any], param: str) -> None:
    response = await post(ScriptedEngine(says("x")), COMPLETIONS, {"prompt": "x", **fields})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
