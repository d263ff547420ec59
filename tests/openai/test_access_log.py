"""Each request leaves one line in the log, which has no secret in it."""

import asyncio
import logging
from typing import Any

import pytest

from tests.ingress.engines import ScriptedEngine, forever, says
from tests.openai.serving import CHAT, HELLO, Socket, http, served

LOGGER = "deployments.ingress.http.access_log"
KEY = "sk-a-secret"
KEYS = {"authorization": f"Bearer {KEY}"}
FIELDS = ("method", "path", "status", "prompt_tokens", "output_tokens", "request_id")


def logged(caplog: pytest.LogCaptureFixture) -> tuple[dict[str, Any], str]:
    """The fields of the only line, and its text without the time."""
    [line] = [record for record in caplog.records if record.name == LOGGER]
    fields = {name: line.__dict__[name] for name in FIELDS if name in line.__dict__}
    took = f" {line.__dict__['duration_ms']}ms"
    assert took in line.getMessage()
    return fields, line.getMessage().replace(took, "")


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_is_logged_with_its_tokens(
    caplog: pytest.LogCaptureFixture, stream: bool
) -> None:
    async def ask() -> dict[str, Any]:
        async with http(served(ScriptedEngine(says("Hi")), api_keys=(KEY,))) as client:
            headers = {**KEYS, "x-request-id": "mine"}
            body = {**HELLO, "stream": stream}
            answer = await client.post(f"{CHAT}?token={KEY}", json=body, headers=headers)
            plain = await client.post(CHAT, json=HELLO, headers=KEYS)
            assert answer.status_code == 200
            usage: dict[str, Any] = plain.json()["usage"]
            return usage

    with caplog.at_level(logging.INFO, logger=LOGGER):
        usage = asyncio.run(ask())
    caplog.records.pop()
    fields, text = logged(caplog)
    tokens = {name: usage[f"{name}_tokens"] for name in ("prompt", "completion")}
    assert fields == {
        "method": "POST",
        "path": CHAT,
        "status": 200,
        "prompt_tokens": tokens["prompt"],
        "output_tokens": tokens["completion"],
        "request_id": "mine",
    }
    assert text == f"POST {CHAT} 200 {tokens['prompt']} tokens in, {tokens['completion']} out"
    assert KEY not in caplog.text
    assert "Hello" not in caplog.text


@pytest.mark.parametrize(
    ("path", "headers", "status", "said"),
    [
        ("/v1/models", KEYS, 200, "/v1/models"),
        (f"/v1/models?key={KEY}", {}, 401, "/v1/models"),
        ("/v1/no\nINFO thing", KEYS, 404, "/v1/no%0AINFO%20thing"),
        ("/v1/" + "x" * 1000, KEYS, 404, "/v1/" + "x" * 252),
        ("/v1/models", {**KEYS, "x-request-id": "a b"}, 400, "/v1/models"),
    ],
)
def test_what_has_no_tokens_is_logged_without(
    caplog: pytest.LogCaptureFixture, path: str, headers: dict[str, str], status: int, said: str
) -> None:
    async def ask() -> None:
        async with http(served(ScriptedEngine(says("Hi")), api_keys=(KEY,))) as client:
            await client.get(path.replace("\n", "%0A"), headers=headers)

    with caplog.at_level(logging.INFO, logger=LOGGER):
        asyncio.run(ask())
    fields, text = logged(caplog)
    assert text == f"GET {said} {status}"
    assert fields.keys() == {"method", "path", "status", "request_id"}
    assert KEY not in caplog.text


def test_answers_of_health_are_no_lines_for_people(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> int:
        async with http(served(ScriptedEngine(says("Hi")), api_keys=(KEY,))) as client:
            return (await client.get("/v1/health")).status_code

    with caplog.at_level(logging.DEBUG, logger=LOGGER):
        status = asyncio.run(ask())
    assert logged(caplog)[0]["status"] == status
    assert {record.levelno for record in caplog.records if record.name == LOGGER} == {logging.DEBUG}


@pytest.mark.parametrize("after", [0, 5])
def test_who_leaves_is_logged_too(caplog: pytest.LogCaptureFixture, after: int) -> None:
    async def leave() -> None:
        engine = ScriptedEngine(forever())
        socket = Socket(CHAT, {**HELLO, "stream": bool(after)})
        serving = asyncio.create_task(socket(served(engine)))
        await engine.starts.get()
        for _ in range(after):
            await socket.sent.get()
        socket.leave()
        await serving

    with caplog.at_level(logging.INFO, logger=LOGGER):
        asyncio.run(leave())
    fields, _ = logged(caplog)
    assert fields["status"] == (200 if after else 499)
    assert fields["output_tokens"] > 0 or not after
