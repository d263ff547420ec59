"""Whole paths under any prefix, and an answer whatever happens behind it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import httpx
import pytest
from ray.serve._private.http_util import RequestIdMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from deployments.contract.errors import RequestError
from deployments.ingress.http.app import (
    SingleRequestId,
    protocol_app,
    request_id_of,
)
from deployments.ingress.http.errors import ERRORS
from deployments.ingress.settings import IngressSettings


def envelope(error: RequestError, request_id: str) -> tuple[int, object]:
    return ERRORS[error.kind].openai.status, {"kind": error.kind, "message": error.message}


async def named(request: Request) -> Response:
    return PlainTextResponse(request_id_of(request))


class Panic(BaseException):
    """A failure like that of a library in Rust."""


async def broken(request: Request) -> Response:
    raise RuntimeError("secret")


async def panicking(request: Request) -> Response:
    raise Panic("secret")


async def breaking(request: Request) -> Response:
    async def body() -> AsyncIterator[bytes]:
        yield b"half"
        raise RuntimeError("secret")

    return StreamingResponse(body())


APP = protocol_app(
    [
        Route("/v1/named", named),
        Route("/v1/broken", broken),
        Route("/v1/panicking", panicking, methods=["GET", "POST"]),
        Route("/v1/breaking", breaking),
    ],
    envelope,
)


def get(path: str, root_path: str = "/v1", **headers: str) -> httpx.Response:
    return get_of(APP, path, root_path, headers)


def get_of(
    app: ASGIApp, path: str, root_path: str, headers: Mapping[str, str], method: str = "GET"
) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, root_path=root_path)
        async with httpx.AsyncClient(transport=transport, base_url="http://manta") as client:
            return await client.request(method, path, headers=headers)

    return asyncio.run(ask())


@pytest.mark.parametrize("root_path", ["", "/v1", "/v1/named"])
def test_the_prefix_does_not_matter(root_path: str) -> None:
    response = get("/v1/named", root_path)
    assert response.status_code == 200
    assert response.text == response.headers["x-request-id"]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_path_may_end_with_a_slash(method: str) -> None:
    """The check of keys sees the same path."""
    route, root = Route("/v1/named", named, methods=[method]), Route("/", named, methods=[method])
    settings = IngressSettings(api_keys=("k",))
    app = protocol_app([route, root], envelope, settings, public=frozenset({"/", "/v1/named"}))

    async def ask(path: str) -> int:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://manta"
        ) as client:
            return (await client.request(method, path)).status_code

    assert [asyncio.run(ask(path)) for path in ("/v1/named", "/v1/named/", "/")] == [200] * 3
    assert asyncio.run(ask("/v1/named//")) == 401


@pytest.mark.parametrize("headers", [{}, {"x-request-id": "m" * 512}])
def test_behind_serve_a_response_has_one_id(headers: dict[str, str]) -> None:
    response = get_of(RequestIdMiddleware(SingleRequestId(APP)), "/v1/named", "/v1", headers)
    assert response.headers.get_list("x-request-id") == [response.text]
    assert headers.get("x-request-id", response.text) == response.text


async def test_a_lifespan_passes() -> None:
    told: list[Any] = []
    coming = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(coming)

    async def send(message: Any) -> None:
        told.append(message["type"])

    await SingleRequestId(APP)({"type": "lifespan"}, receive, send)
    assert told == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


@pytest.mark.parametrize("unusable", ["", "m" * 513, "a b", "new\tline", "gr\u00fc\u00df"])
def test_an_id_that_is_not_usable_is_refused(unusable: str) -> None:
    headers = httpx.Headers([(b"x-request-id", unusable.encode())])
    served = RequestIdMiddleware(SingleRequestId(APP))
    response = get_of(served, "/v1/named", "/v1", headers)
    assert response.status_code == 400
    assert "`X-Request-ID`" in response.json()["message"]
    assert response.headers.get_list("x-request-id") == [unusable]


def test_an_unknown_path_is_told_in_form() -> None:
    response = get("/v1/nothing")
    assert response.status_code == 404
    assert response.json()["message"] == "There is no GET /v1/nothing"


@pytest.mark.parametrize(
    ("path", "method"), [("broken", "GET"), ("panicking", "GET"), ("panicking", "POST")]
)
def test_a_failure_is_500_and_does_not_escape(path: str, method: str) -> None:
    response = get_of(APP, f"/v1/{path}", "/v1", {}, method)
    assert response.status_code == 500
    assert response.json()["kind"] == "internal"
    assert "secret" not in response.text


def test_a_failure_in_a_body_breaks_the_connection() -> None:
    with pytest.raises(RuntimeError, match="secret"):
        get("/v1/breaking")
