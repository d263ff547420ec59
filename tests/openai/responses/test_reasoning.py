"""Thoughts are summarized and encrypted where clients ask, and read again where they come back."""

import asyncio
import base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from tests.ingress.engines import ScriptedEngine, says
from tests.openai.responses.responding import (
    CALL,
    HELLO,
    RESPONSES,
    THINKER,
    WEATHER,
    events_of,
    prompt_of,
    streamed,
    talking,
    whole,
)
from tests.openai.serving import http, served

THOUGHT = "Hm, Stra\u00dfe?"
ANSWER = f"<think>{THOUGHT}</think>So: {CALL}"
ENCRYPTED = ["reasoning.encrypted_content"]
SUMMARY = {"reasoning": {"summary": "auto"}}
CALLER = replace(THINKER, chat_template=f"{THINKER.chat_template}{{% if tools %}}{{% endif %}}")
STATELESS: dict[str, Any] = {"store": False, "include": ENCRYPTED}
# What Codex sends, shortened.
AGENT: dict[str, Any] = {
    "instructions": "You are a coding agent.",
    "tools": [
        WEATHER,
        {"type": "custom", "name": "apply_patch", "format": {"type": "text"}},
        {"type": "web_search", "external_web_access": True},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "text": {"verbosity": "low"},
    "store": False,
    "stream": True,
    "include": ENCRYPTED,
    "prompt_cache_key": "0199a213-81c0-7800-8aa1-bbab2a035a53",
}
QUESTION = {
    "type": "message",
    "role": "user",
    "content": [{"type": "input_text", "text": "How is the weather?"}],
}


def test_a_thought_is_its_own_summary() -> None:
    for field in ("summary", "generate_summary"):
        body = whole(says(ANSWER), tools=[WEATHER], reasoning={field: "detailed"})
        [thought, *_] = body["output"]
        assert thought["summary"] == [{"type": "summary_text", "text": THOUGHT}]
        assert (thought["content"], thought["status"]) == ([], "completed")
        assert "encrypted_content" not in thought
        assert body["reasoning"] == {"effort": None, "summary": "detailed"}


def test_a_summary_streams_as_openais() -> None:
    events = streamed(says(f"<think>{THOUGHT}</think>Fine.", size=99), **SUMMARY)
    of_thought = [event for event in events if event.get("output_index") == 0]
    assert [event["type"].removeprefix("response.") for event in of_thought] == [
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
    ]
    added, *parts, done = of_thought
    assert (added["item"]["summary"], added["item"]["content"]) == ([], [])
    assert {(part["summary_index"], part["item_id"]) for part in parts} == {(0, done["item"]["id"])}
    assert parts[-1]["part"] == done["item"]["summary"][0]
    assert "status" not in parts[-1]


def test_a_summary_that_a_limit_cuts_is_incomplete() -> None:
    events = streamed(says(f"<think>{THOUGHT * 9}"), **SUMMARY, max_output_tokens=30)
    [done] = [event for event in events if event["type"] == "response.reasoning_summary_part.done"]
    assert done["status"] == "incomplete"
    assert events[-1]["response"]["output"][0]["status"] == "incomplete"


def agents_history(output: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The items of an answer as Codex sends them back: without ids, and without thoughts that are
    text.
    """
    kept = {
        "reasoning": ("type", "summary", "encrypted_content"),
        "message": ("type", "role", "content"),
        "function_call": ("type", "name", "arguments", "call_id"),
    }
    sent: list[dict[str, Any]] = []
    for item in output:
        sent.append({name: item[name] for name in kept[item["type"]]})
        if item["type"] == "function_call":
            result = {"type": "function_call_output", "call_id": item["call_id"], "output": "sunny"}
            sent.append(result)
    return sent


async def test_an_agent_that_stores_nothing_here_loses_no_thought() -> None:
    async with talking(says(ANSWER), CALLER) as (ask, engine):
        events = events_of(await ask({**AGENT, "input": [QUESTION]}))
        ended = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert ended == events[-1]["response"]["output"]
        assert [item["type"] for item in ended] == ["reasoning", "message", "function_call"]
        history = agents_history(ended)
        without_summary = [{**history[0], "summary": [], "content": None}, *history[1:]]
        for items in (history, without_summary):
            response = await ask({**AGENT, "input": [QUESTION, *items]})
            assert events_of(response)[-1]["type"] == "response.completed"
        summarized, encrypted = [prompt_of(request, CALLER) for request in engine.requests[1:]]
    assert summarized == encrypted
    assert f"<think>{THOUGHT}</think>So:" in encrypted
    assert "sunny" in encrypted


def test_without_a_summary_the_thought_is_text_beside_its_encryption() -> None:
    [thought, _] = whole(says(f"<think>{THOUGHT}</think>Fine."), include=ENCRYPTED)["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": THOUGHT}]
    assert THOUGHT.encode() not in base64.urlsafe_b64decode(thought["encrypted_content"])


def test_what_is_encrypted_outlives_the_request_that_sent_it_back() -> None:
    """It is listed as it came, and conversations that go on from the store read it."""

    async def run() -> str:
        engine = ScriptedEngine(says(ANSWER), THINKER)
        async with http(served(engine)) as client:

            async def ask(**fields: object) -> Any:
                return (await client.post(RESPONSES, json={**HELLO, **fields})).json()

            [thought, *_] = (await ask(**STATELESS))["output"]
            item = {"type": "reasoning", "encrypted_content": thought["encrypted_content"]}
            second = await ask(input=[item, {"role": "user", "content": "So?"}])
            listed = await client.get(f"{RESPONSES}/{second['id']}/input_items?order=asc")
            assert listed.json()["data"][0]["encrypted_content"] == thought["encrypted_content"]
            await ask(previous_response_id=second["id"])
            return prompt_of(engine.requests[-1], THINKER)

    assert f"<think>{THOUGHT}</think>" in asyncio.run(run())


KEYS = ("alice", "bob")
SECRET = b"of all replicas"


async def thought_of(application: ASGIApp, key: str) -> str:
    made = await send(application, key, HELLO | STATELESS)
    content: str = made.json()["output"][0]["encrypted_content"]
    return content


async def send_back(application: ASGIApp, key: str, content: str) -> httpx.Response:
    item = {"type": "reasoning", "encrypted_content": content}
    return await send(application, key, {"input": [{"role": "user", "content": "x"}, item]})


async def send(application: ASGIApp, key: str, body: object) -> httpx.Response:
    async with http(application) as client:
        headers = {"authorization": f"Bearer {key}"}
        return await client.post(RESPONSES, json=body, headers=headers)


def replica(encryption_key: bytes) -> ASGIApp:
    engine = ScriptedEngine(says(ANSWER), THINKER)
    return served(engine, api_keys=KEYS, encryption_key=encryption_key)


async def test_replicas_with_one_key_read_each_others_thoughts() -> None:
    content = await thought_of(replica(SECRET), "alice")
    assert (await send_back(replica(SECRET), "alice", content)).status_code == 200


@pytest.mark.parametrize(
    "case", ["another server", "another owner", "changed", "cut", "", "\u00df"]
)
def test_what_can_not_be_decrypted_is_refused_by_its_name(case: str) -> None:
    async def run() -> httpx.Response:
        ours = replica(SECRET)
        content = await thought_of(ours, "alice")
        match case:
            case "another server":
                return await send_back(replica(b""), "alice", content)
            case "another owner":
                return await send_back(ours, "bob", content)
            case "changed":
                other = "A" if content[20] != "A" else "B"
                return await send_back(ours, "alice", content[:20] + other + content[21:])
            case "cut":
                return await send_back(ours, "alice", content[:8])
        return await send_back(ours, "alice", case)

    response = asyncio.run(run())
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == "input[1].encrypted_content"
    assert "can't be decrypted" in error["message"]
