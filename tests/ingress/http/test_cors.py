"""Pages of the named origins may ask, with any header and no cookie; others get no permission."""

import httpx
import pytest

from deployments.contract.errors import ErrorKind, RequestError
from deployments.ingress.settings import IngressSettings
from tests.ingress.edge import ask, served
from tests.ingress.engines import Script, fails, raises
from tests.openai.serving import CHAT, HELLO

OURS, THEIRS = "https://chat.example", "https://evil.example"
LISTED = IngressSettings(cors_origins=(OURS, "http://localhost:3000"))
ALL = IngressSettings(cors_origins=("*",))
SDK_HEADERS = (
    "authorization,content-type,x-api-key,anthropic-version,anthropic-beta,"
    "anthropic-dangerous-direct-browser-access,x-stainless-os,x-stainless-retry-count,openai-project"
)


def preflight(
    settings: IngressSettings, origin: str = OURS, method: str = "POST"
) -> httpx.Response:
    headers = {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": SDK_HEADERS,
    }
    return ask(served(settings=settings), "OPTIONS", CHAT, headers=headers)


def allowed(response: httpx.Response) -> str | None:
    found: str | None = response.headers.get("access-control-allow-origin")
    return found


def test_without_origins_no_answer_has_a_cors_header() -> None:
    answered = ask(served(), "POST", CHAT, json=HELLO, headers={"origin": OURS})
    for response in (answered, preflight(IngressSettings())):
        assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize(("settings", "told"), [(LISTED, OURS), (ALL, "*")])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
def test_a_preflight_permits_what_the_sdks_send(
    settings: IngressSettings, told: str, method: str
) -> None:
    response = preflight(settings, method=method)
    assert (response.status_code, allowed(response)) == (200, told)
    assert response.headers["access-control-allow-headers"] == SDK_HEADERS
    assert method in response.headers["access-control-allow-methods"]
    assert "access-control-allow-credentials" not in response.headers


@pytest.mark.parametrize("origin", [THEIRS, "null", OURS + ".evil.example", "http://chat.example"])
def test_other_origins_are_permitted_nothing(origin: str) -> None:
    asked = ask(served(settings=LISTED), "POST", CHAT, json=HELLO, headers={"origin": origin})
    assert allowed(asked) is None
    assert asked.headers["vary"] == "Origin"
    refused = preflight(LISTED, origin)
    assert (refused.status_code, allowed(refused)) == (400, None)


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (None, 200),
        (fails(RequestError(ErrorKind.OVERLOADED, "later")), 429),
        (raises(RuntimeError("inside")), 500),
    ],
)
def test_answers_and_failures_can_be_read_by_the_page(script: Script | None, status: int) -> None:
    app = served(script, LISTED)
    response = ask(app, "POST", CHAT, json=HELLO, headers={"origin": OURS})
    assert (response.status_code, allowed(response)) == (status, OURS)
    exposed = response.headers["access-control-expose-headers"]
    assert {"x-request-id", "request-id", "retry-after"} <= set(exposed.split(", "))
    assert "access-control-allow-credentials" not in response.headers


def test_what_is_refused_on_the_way_can_be_read_too() -> None:
    settings = IngressSettings(api_keys=("key",), cors_origins=(OURS,))
    refused = ask(served(settings=settings), "POST", CHAT, json=HELLO, headers={"origin": OURS})
    assert (refused.status_code, allowed(refused)) == (401, OURS)
    with_key = {"origin": OURS, "authorization": "Bearer key"}
    missing = ask(served(settings=settings), "GET", "/v1/nothing", headers=with_key)
    assert (missing.status_code, allowed(missing)) == (404, OURS)
    assert preflight(settings).status_code == 200  # a browser sends no key with it
