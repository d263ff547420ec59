"""A WebSocket is opened nowhere: its handshake is guarded as a request is, and refused in words."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.types import ASGIApp, Message

from deployments.ingress.error_bodies import openai_envelope
from deployments.ingress.host_names import HostNames
from deployments.ingress.http.auth import Auth
from deployments.ingress.http.hosts import HostCheck
from deployments.ingress.settings import IngressSettings
from tests.ingress.edge import every, served

RESPONSES = "/v1/responses"
KEYS = IngressSettings(api_keys=("key",))
OWN = HostNames(("manta",), lambda: "127.0.0.1")
NAMED = IngressSettings(host_names=OWN)
DENIAL: Mapping[str, object] = {"websocket.http.response": {}}
Answer = tuple[int, dict[str, str], Any]


def handshake(
    path: str, headers: Mapping[str, str], extensions: Mapping[str, object] = DENIAL
) -> dict[str, Any]:
    sent = {"host": "manta", "upgrade": "websocket", "connection": "upgrade", **headers}
    return {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in sent.items()],
        "subprotocols": [],
        "extensions": extensions,
        "state": {"request_id": "r"},
    }


def sent_by(app: ASGIApp, scope: dict[str, Any]) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        sent.append(message)

    async def exchange() -> None:
        await app(scope, receive, send)

    asyncio.run(exchange())
    return sent


def denied(app: ASGIApp, path: str, headers: Mapping[str, str] | None = None) -> Answer:
    start, *rest = sent_by(app, handshake(path, headers or {}))
    assert start["type"] == "websocket.http.response.start"
    assert {event["type"] for event in rest} == {"websocket.http.response.body"}
    told = {name.decode(): value.decode() for name, value in start["headers"]}
    assert told["content-type"] == "application/json"
    return start["status"], told, json.loads(b"".join(event["body"] for event in rest))


def test_a_client_that_tries_one_is_told_to_ask_over_http() -> None:
    status, headers, body = denied(served(), RESPONSES)
    assert (status, body["error"]["code"]) == (426, "upgrade_required")
    assert headers["upgrade"] == "HTTP/1.1"
    assert headers["x-request-id"]


@pytest.mark.parametrize("protocol", ["openai", "anthropic", "llama"])
def test_every_other_path_denies_it(protocol: str) -> None:
    for path in ("/v1/realtime", "//v1/responses", "/nothing"):
        assert denied(every()[protocol], path)[0] == 404


def test_it_needs_a_key_as_a_request_does() -> None:
    for path in (RESPONSES, "/v1/nothing"):
        status, headers, body = denied(served(settings=KEYS), path)
        assert (status, body["error"]["code"]) == (401, "invalid_api_key")
        assert headers["www-authenticate"] == "Bearer"
    assert denied(served(settings=KEYS), RESPONSES, {"authorization": "Bearer key"})[0] == 426


def test_a_page_under_another_name_does_not_reach_it() -> None:
    assert denied(served(settings=NAMED), RESPONSES, {"host": "evil.example"})[0] == 421
    assert denied(served(settings=NAMED), RESPONSES)[0] == 426


def test_no_guard_lets_a_kind_of_exchange_through_but_the_servers_own() -> None:
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["type"])

    strange = handshake(RESPONSES, {"host": "evil.example"})
    guards = Auth(app, ("key",), frozenset(), openai_envelope), HostCheck(app, OWN, openai_envelope)
    for guard in guards:
        for kind in ("websocket", "webtransport"):
            sent_by(guard, {**strange, "type": kind})
    assert not seen
    for guard in guards:
        sent_by(guard, {"type": "lifespan"})
    assert seen == ["lifespan", "lifespan"]


def test_a_server_that_can_only_close_one_closes_it() -> None:
    [closed] = sent_by(served(), handshake(RESPONSES, {}, extensions={}))
    assert closed["type"] == "websocket.close"
