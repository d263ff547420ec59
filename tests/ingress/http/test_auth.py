"""Whoever has one of the keys may enter, in either form; nobody sees a key or half of one."""

import asyncio
import logging

import httpx
import pytest
from openai import AsyncOpenAI, AuthenticationError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from deployments.ingress.error_bodies import openai_envelope
from deployments.ingress.http.app import protocol_app
from deployments.ingress.settings import IngressSettings
from tests.ingress.edge import ask, every, served
from tests.openai.serving import CHAT, HELLO

KEYS = IngressSettings(api_keys=("first-key", "second-key"))
RIGHT = [
    {"authorization": "Bearer first-key"},
    {"authorization": "bearer second-key"},
    {"authorization": "Bearer  first-key"},
    {"x-api-key": "second-key"},
    {"x-api-key": "first-key", "authorization": "Bearer of something else"},
    {"x-api-key": "placeholder", "authorization": "Bearer first-key"},
]
WRONG = [
    {},
    {"authorization": ""},
    {"authorization": "first-key"},
    {"authorization": "Bearer"},
    {"authorization": "Bearer first"},
    {"authorization": "Bearer first-key second-key"},
    {"authorization": "Basic first-key"},
    {"authorization": "Bearer first-keyfirst-key"},
    {"x-api-key": ""},
    {"x-api-key": "first-key,second-key"},
    {"x-api-key": "FIRST-KEY"},
    {"x-api-key": "\u00e9"},
    {"api-key": "first-key"},
]


@pytest.mark.parametrize("headers", RIGHT)
def test_any_key_in_either_form_opens(headers: dict[str, str]) -> None:
    assert ask(served(settings=KEYS), "POST", CHAT, json=HELLO, headers=headers).is_success


@pytest.mark.parametrize("headers", WRONG)
def test_anything_else_is_401_in_the_protocols_form(headers: dict[str, str]) -> None:
    sent = {name: value.encode() for name, value in headers.items()}
    response = ask(served(settings=KEYS), "POST", CHAT, json=HELLO, headers=sent)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.headers["x-request-id"]
    error = response.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_api_key")


def test_without_keys_everybody_may_enter() -> None:
    for headers in (*RIGHT, *WRONG[:4]):
        assert ask(served(), "POST", CHAT, json=HELLO, headers=headers).is_success


def test_a_key_is_wanted_before_a_path_is_told_of() -> None:
    for path in ("/v1/models", "/v1/nothing"):
        assert ask(served(settings=KEYS), "GET", path).status_code == 401


def test_only_the_public_paths_and_options_are_open() -> None:
    async def healthy(request: Request) -> Response:
        return PlainTextResponse("fine")

    routes = [Route("/health", healthy), Route("/health/more", healthy)]
    open_app = protocol_app(routes, openai_envelope, KEYS, public=frozenset({"/health"}))
    assert ask(open_app, "GET", "/health").text == "fine"
    assert ask(open_app, "HEAD", "/health").is_success
    for path in ("/health/more", "/health//", "/Health", "//health"):
        assert ask(open_app, "GET", path).status_code == 401
    assert ask(open_app, "OPTIONS", "/health/more").status_code == 405


def test_health_needs_no_key() -> None:
    for protocol, path in (("openai", "/v1/health"), ("llama", "/health")):
        health = ask(every(KEYS)[protocol], "GET", path)
        assert health.json() == {"status": "ok", "model_loaded": True}


def test_a_key_of_any_letters_opens() -> None:
    settings = IngressSettings(api_keys=("schl\u00fcssel",))
    header = {"x-api-key": "schl\u00fcssel".encode()}
    assert ask(served(settings=settings), "POST", CHAT, json=HELLO, headers=header).is_success


def test_no_key_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    headers = {"authorization": "Bearer their-guess", "x-api-key": "first-key-not"}
    response = ask(served(settings=KEYS), "POST", CHAT, json=HELLO, headers=headers)
    told = response.text + str(response.headers) + caplog.text + repr(KEYS)
    assert not any(key in told for key in ("their-guess", "first-key", "second-key"))


def test_the_sdk_knows_what_it_is_missing() -> None:
    async def asks(key: str) -> None:
        transport = httpx.ASGITransport(served(settings=KEYS))
        async with httpx.AsyncClient(transport=transport) as inner:
            client = AsyncOpenAI(
                api_key=key,
                base_url="http://manta/v1",
                http_client=inner,  # type: ignore[arg-type]
                max_retries=0,
            )
            await client.models.list()

    asyncio.run(asks("second-key"))
    with pytest.raises(AuthenticationError):
        asyncio.run(asks("third-key"))
