"""Failures of the server in the form of each protocol: as an answer, or at the end of a stream."""

from typing import Any

import pytest

from deployments.contract.errors import ErrorKind, RequestError
from tests.ingress.edge import asked
from tests.ingress.engines import fails, raises
from tests.ingress.protocols.every import EACH_STREAM, NATIVE_CHATS, PROTOCOLS
from tests.ingress.protocols.protocol import Protocol, data_in, last_error, piece_of
from tests.malformed.cases import message_of

EACH = pytest.mark.parametrize("protocol", [*PROTOCOLS, NATIVE_CHATS], ids=str)
# The status and the name in each application's form, and when to come again.
FAILURES: list[tuple[ErrorKind, dict[str, tuple[int, str]], str | None]] = [
    (
        ErrorKind.OVERLOADED,
        {
            "openai": (429, "overloaded"),
            "anthropic": (529, "overloaded_error"),
            "llama": (503, "unavailable_error"),
        },
        "1",
    ),
    (
        ErrorKind.UNAVAILABLE,
        {
            "openai": (503, "service_unavailable"),
            "anthropic": (529, "overloaded_error"),
            "llama": (503, "unavailable_error"),
        },
        "5",
    ),
    (
        ErrorKind.CONTEXT_LENGTH,
        {
            "openai": (400, "context_length_exceeded"),
            "anthropic": (400, "invalid_request_error"),
            "llama": (400, "exceed_context_size_error"),
        },
        None,
    ),
    (
        ErrorKind.GENERATION_TIMEOUT,
        {
            "openai": (504, "timeout"),
            "anthropic": (504, "timeout_error"),
            "llama": (504, "server_error"),
        },
        "1",
    ),
    (
        ErrorKind.INTERNAL,
        {
            "openai": (500, "internal_error"),
            "anthropic": (500, "api_error"),
            "llama": (500, "server_error"),
        },
        None,
    ),
]
NAMES = {"openai": "code"}  # of the field that names a failure; others have "type"
GONE = RequestError(ErrorKind.UNAVAILABLE, "gone")
LAST: dict[str, dict[str, Any]] = {
    "openai": {
        "message": "gone",
        "type": "server_error",
        "param": None,
        "code": "service_unavailable",
    },
    "anthropic": {"type": "overloaded_error", "message": "gone"},
    "llama": {"message": "gone", "type": "unavailable_error", "code": 503},
}


@EACH
@EACH_STREAM
@pytest.mark.parametrize(("kind", "forms", "retry"), FAILURES)
def test_a_failure_before_the_first_token_keeps_its_status(
    protocol: Protocol,
    stream: bool,
    kind: ErrorKind,
    forms: dict[str, tuple[int, str]],
    retry: str | None,
) -> None:
    failing = fails(RequestError(kind, "because"))
    response = protocol.answer(failing, stream=stream, **protocol.several)
    status, name = forms[protocol.application]
    assert response.status_code == status
    assert (message_of(protocol.application, response) == "because") == (status != 500)
    assert response.json()["error"][NAMES.get(protocol.application, "type")] == name
    assert response.headers.get("retry-after") == retry


@EACH
@EACH_STREAM
def test_what_broke_inside_stays_inside(protocol: Protocol, stream: bool) -> None:
    """A client is told the id of its request, with which the log has the rest."""
    found = protocol.ask(
        raises(RuntimeError("/secret/path")), headers={"x-request-id": "mine"}, stream=stream
    )
    response = found.response
    assert response.status_code == 500
    assert "secret" not in response.text
    assert "mine" in message_of(protocol.application, response)
    assert response.headers["x-request-id"] == "mine"


@EACH
def test_a_failure_after_the_headers_goes_into_the_stream(protocol: Protocol) -> None:
    failing = fails(GONE, after="Hello")
    found = protocol.ask(failing, headers={"x-request-id": "mine"}, stream=True)
    assert found.response.status_code == 200
    events = data_in(found.response.text)
    assert "".join(map(piece_of, events)) == "Hello"
    if protocol.name == "responses":
        assert events[-1]["type"] == "response.failed"
        assert last_error(found.response.text)["message"] == "gone"
    else:
        assert events[-1].keys() - {"type", "request_id"} == {"error"}
        assert last_error(found.response.text) == LAST[protocol.application]
    if protocol.application == "anthropic":
        assert (events[-1]["type"], events[-1]["request_id"]) == ("error", "mine")


@EACH
def test_an_unknown_model_is_404(protocol: Protocol) -> None:
    body = {**protocol.hello, "model": "nobody's"}
    response = asked(protocol.path, body, script=raises(AssertionError())).response
    assert response.status_code == 404
    assert "nobody's" in message_of(protocol.application, response)
    error = response.json()["error"]
    missing = "model_not_found" if protocol.application == "openai" else "not_found_error"
    assert error[NAMES.get(protocol.application, "type")] == missing
    if protocol.application != "anthropic":
        assert error["param"] == "model"
