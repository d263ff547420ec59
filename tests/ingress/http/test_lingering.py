"""An error reaches a client that reads only when it has sent all, though the connection ends."""

import socket
import urllib.error
import urllib.request

import pytest
from starlette.requests import Request
from starlette.routing import Route

from deployments.ingress.error_bodies import openai_envelope
from deployments.ingress.http import lingering
from deployments.ingress.http.app import protocol_app
from deployments.ingress.http.body import read_body
from deployments.ingress.settings import IngressSettings
from tests.listening import listening

SETTINGS = IngressSettings(api_keys=("key",), body_limit=1000)
LARGE = b"x" * (8 << 20)  # more than the sockets of both ends hold


async def read(request: Request) -> None:
    await read_body(request, SETTINGS)


APP = protocol_app([Route("/read", read, methods=["POST"])], openai_envelope, SETTINGS)


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [("/read", {"x-api-key": "key"}, 413), ("/nothing", {"x-api-key": "key"}, 404)]
    + [("/read", {"x-api-key": "wrong"}, 401), ("/read", {"x-request-id": "a b"}, 400)],
)
def test_an_early_error_is_read_over_a_connection_that_ends(
    path: str, headers: dict[str, str], status: int
) -> None:
    """urllib closes each connection, as nginx does without a setting."""
    with listening(APP) as url:
        headers |= {"content-type": "application/json"}
        request = urllib.request.Request(url + path, data=LARGE, headers=headers)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
    assert refused.value.code == status
    assert b'"message"' in refused.value.read()


@pytest.mark.parametrize(
    ("limit", "value", "sends"),
    [("MAX_REST_BYTES", 1 << 20, True), ("SILENCE_S", 0.05, False), ("REST_S", 0.05, False)],
)
def test_a_client_that_sends_for_ever_is_answered(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: float, sends: bool
) -> None:
    monkeypatch.setattr(lingering, limit, value)
    head = b"POST /read HTTP/1.0\r\ncontent-length: 100000000000\r\n\r\n"
    with listening(APP) as url, socket.create_connection(("127.0.0.1", port_of(url))) as client:
        client.sendall(head)
        client.sendall(bytes(2 << 20) if sends else b"x")
        assert client.recv(12) == b"HTTP/1.1 401"


def test_a_client_that_asks_before_it_sends_is_not_asked_to() -> None:
    head = b"POST /read HTTP/1.1\r\nconnection: close\r\nexpect: 100-continue\r\n"
    with listening(APP) as url, socket.create_connection(("127.0.0.1", port_of(url))) as client:
        client.sendall(head + b"host: x\r\ncontent-length: 100000000000\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 401"


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])
