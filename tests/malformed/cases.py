"""Requests that are wrong, as data: what each must be refused with, and what its message names."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import httpx

from deployments.ingress.settings import BODY_LIMIT
from tests.malformed.endpoints import ENDPOINTS
from tests.malformed.fields import UNKNOWN_RESPONSE, Endpoint

JSON = {"content-type": "application/json"}
TOO_LARGE = b" " * (BODY_LIMIT + 1)


@dataclass(frozen=True)
class Malformed:
    protocol: str
    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    status: int
    told: str  # is in the message
    param: str = ""  # the name of the field, where the protocol has one

    def __str__(self) -> str:
        start = self.body[:40].decode("latin-1").encode("ascii", "backslashreplace").decode()
        return f"{self.protocol} {self.method} {self.path} {self.status} {self.told} {start}"


# Of any endpoint: the body, and what its message must have.
NO_JSON: Sequence[tuple[bytes, str]] = (
    (b"", "not JSON"),
    (b"   ", "not JSON"),
    (b"{", "line 1 column 2"),
    (b'{\n"a": }', "line 2 column 6"),
    (b'{"a": 1,}', "not JSON"),
    (b'{"a": 1} {}', "not JSON"),
    (b"{'a': 1}", "not JSON"),
    (b'{"a": 01}', "not JSON"),
    (b'{"a": "line\nend"}', "not JSON"),
    (b'{"a": "\\x"}', "not JSON"),
    (b"messages=hello", "not JSON"),
    (b"[]", "object"),
    (b"null", "object"),
    (b"5", "object"),
    (b'"text"', "object"),
    (b'{"a": NaN}', "NaN"),
    (b'{"a": -Infinity}', "Infinity"),
    (b'{"a": 1e999}', "too large"),
    (b'{"a": ' + b"9" * 5000 + b"}", "too long"),
    (b'{"a": "\xff"}', "UTF-8"),
    (b"\xff\xfe{\x00}\x00", "UTF-8"),
    (b"\xef\xbb\xbf{}", "BOM"),
    (b'{"a": "\\ud800"}', "surrogate"),
    (b'{"\\udfff": 1}', "surrogate"),
    (b'{"twice": 1, "twice": 1}', "twice"),
    (b"[" * 100_000, "deep"),
    (b'{"a":' * 200 + b"1" + b"}" * 200, "deep"),
)
UNSAID = ("", "application/x-www-form-urlencoded")
NO_MEDIA: Sequence[Mapping[str, str]] = (
    {},
    {"content-type": ""},
    {"content-type": "text/plain"},
    {"content-type": "application/x-www-form-urlencoded"},
    {"content-type": "application/json; charset=latin-1"},
    {"content-type": "application/json", "content-encoding": "gzip"},
)


def cases() -> Iterator[Malformed]:
    for endpoint in ENDPOINTS:
        yield from _of_fields(endpoint)
        for body, told in NO_JSON:
            yield _post(endpoint, body, told)
        for headers in NO_MEDIA:
            if endpoint.protocol == "llama" and headers.get("content-type", "") in UNSAID:
                continue  # it is JSON there
            told = "encoding" if "content-encoding" in headers else "application/json"
            yield _post(endpoint, b"{}", told, 415, headers)
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            yield Malformed(endpoint.protocol, method, endpoint.path, JSON, b"", 405, method)
        yield Malformed(endpoint.protocol, "POST", endpoint.path + "//", JSON, b"{}", 404, "POST")
    for protocol in dict.fromkeys(endpoint.protocol for endpoint in ENDPOINTS):
        first = next(candidate for candidate in ENDPOINTS if candidate.protocol == protocol)
        yield _post(first, TOO_LARGE, str(BODY_LIMIT), 413)
        unknown = {**first.right, "model": "nobody's"}
        yield _post(first, json.dumps(unknown).encode(), "nobody's", 404)


def _of_fields(endpoint: Endpoint) -> Iterator[Malformed]:
    for is_inner, table in enumerate((endpoint.wrong, endpoint.inner)):
        for param, values in table.items():
            for value in values:
                body = json.loads(json.dumps(endpoint.right))
                _put(body, re.split(r"[.[]", param)[0] if is_inner else param, value)
                told = UNKNOWN_RESPONSE if value == UNKNOWN_RESPONSE else param
                yield replace(_post(endpoint, json.dumps(body).encode(), told), param=param)


def _put(body: Any, path: str, value: object) -> None:
    """Puts the value where the path says; lists and objects are made as long as it takes."""
    parts = [
        int(part) if part.isdigit() else part
        for part in path.replace("[", ".").replace("]", "").split(".")
    ]
    for part, following in pairwise(parts):
        if isinstance(following, int) and not isinstance(body.get(part), list):
            body[part] = [None]
        elif isinstance(part, str):
            body.setdefault(part, {})
        body = body[part]
    body[parts[-1]] = value


def _post(
    endpoint: Endpoint,
    body: bytes,
    told: str,
    status: int = 400,
    headers: Mapping[str, str] = JSON,
) -> Malformed:
    return Malformed(endpoint.protocol, "POST", endpoint.path, headers, body, status, told)


def message_of(protocol: str, response: httpx.Response) -> str:
    """The message of an error, once it has all that its protocol gives an error."""
    assert response.headers["content-type"] == "application/json"
    request_id = response.headers["x-request-id"]
    assert request_id
    body = response.json()
    error = body["error"]
    match protocol:
        case "openai":
            assert set(body) == {"error"}
            assert set(error) == {"message", "type", "param", "code"}
        case "anthropic":
            assert set(body) == {"type", "error", "request_id"}
            assert (body["type"], error.keys() - {"details"}) == ("error", {"type", "message"})
            assert body["request_id"] == response.headers["request-id"] == request_id
        case _:
            assert set(body) == {"error"}
            named = error.keys() - {"param", "n_prompt_tokens", "n_ctx"}
            assert named == {"message", "type", "code"}
            assert error["code"] == response.status_code
    message = error["message"]
    assert isinstance(message, str)
    assert message
    assert error["type"]
    assert not any(word in message for word in ("pydantic", "http"))
    return message
