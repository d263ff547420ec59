"""The document says what the routes take and give; its page loads nothing from elsewhere."""

import base64
import hashlib
import re
from typing import Any

import pytest
import schemathesis
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from deployments.contract.errors import ErrorKind
from deployments.ingress.error_bodies import openai_envelope
from deployments.ingress.http.app import protocol_app
from deployments.ingress.http.errors import ERRORS
from deployments.ingress.http.openapi import RARE_ERRORS, Documentation, DocumentedRoute
from deployments.ingress.settings import DEFAULTS, IngressSettings
from tests.ingress.edge import ask, served

DOCUMENT, PAGE = "/v1/openapi.json", "/v1/docs"
KEYS = IngressSettings(api_keys=("a-secret",))


def document(settings: IngressSettings = DEFAULTS) -> Any:
    response = ask(served(settings=settings), "GET", DOCUMENT)
    assert response.headers["content-type"] == "application/json"
    return response.json()


def responses(of: Any, path: str, method: str) -> set[str]:
    return set(of["paths"][path][method]["responses"])


def test_it_is_valid_and_has_every_route() -> None:
    found = document()
    schemathesis.openapi.from_dict(found).validate()
    assert {"/v1/chat/completions", "/v1/completions", "/v1/models/{id}"} <= found["paths"].keys()
    assert not {DOCUMENT, PAGE} & found["paths"].keys()


def test_a_body_is_described_field_by_field() -> None:
    found = document()
    content = found["paths"]["/v1/completions"]["post"]["requestBody"]["content"]
    assert content == {
        "application/json": {"schema": {"$ref": "#/components/schemas/CompletionRequest"}}
    }
    fields = found["components"]["schemas"]["CompletionRequest"]["properties"]
    ranges = {"minimum": 0, "maximum": 2, "type": "number"}
    assert ranges in fields["temperature"]["anyOf"]


def test_what_streams_says_so() -> None:
    paths = document()["paths"]
    answers = paths["/v1/chat/completions"]["post"]["responses"]["200"]["content"]
    assert set(answers) == {"application/json", "text/event-stream"}
    assert set(paths["/v1/models"]["get"]["responses"]["200"]["content"]) == {"application/json"}


def test_every_status_of_what_stores_nothing_is_documented() -> None:
    statuses = {str(ERRORS[kind].openai.status) for kind in set(ErrorKind) - RARE_ERRORS}
    assert responses(document(KEYS), "/v1/completions", "post") == {"200", *statuses}
    no_body = statuses - {"408", "413", "415"}
    assert responses(document(KEYS), "/v1/models", "get") == {"200", *no_body}


def test_an_error_is_described_as_it_is_sent() -> None:
    described = document()["components"]["schemas"]["ErrorBody"]
    error = described["properties"]["error"]
    assert described["required"] == ["error"]
    assert error["required"] == ["message", "type", "param", "code"]
    assert error["properties"]["param"] == {"type": ["null", "string"]}


def test_keys_are_documented_where_there_are_some() -> None:
    opened, locked = document(), document(KEYS)
    assert "securitySchemes" not in opened["components"]
    assert set(locked["components"]["securitySchemes"]) == {"bearer", "x-api-key"}
    asked = locked["paths"]["/v1/models"]["get"]
    assert asked["security"] == [{"bearer": []}, {"x-api-key": []}]
    assert "401" in responses(locked, "/v1/models", "get")
    assert "401" not in responses(opened, "/v1/models", "get")
    assert "a-secret" not in str(locked)


def test_document_and_page_need_no_key() -> None:
    for path in (DOCUMENT, PAGE):
        assert ask(served(settings=KEYS), "GET", path).is_success


def test_bodies_of_one_name_are_told_apart_and_public_paths_are_open() -> None:
    async def endpoint(request: Request) -> Response:
        return PlainTextResponse("")

    def route(path: str, fields: dict[str, Any], *methods: str) -> DocumentedRoute:
        body = type("Body", (BaseModel,), fields | {"__module__": f"of{path.replace('/', '_')}"})
        return DocumentedRoute(
            path, endpoint, methods=methods, name="some_words", tag="t", body=body
        )

    routes = [
        route("/a", {"__annotations__": {"left": int}}, "POST"),
        route("/b/{id:int}", {"__annotations__": {"right": int}}, "DELETE", "PUT"),
    ]
    about = Documentation(title="Two")
    public = frozenset({"/a"})
    app = protocol_app(routes, openai_envelope, KEYS, public=public, documented=about)
    found = ask(app, "GET", "/openapi.json").json()
    fields = [
        set(schema.get("properties", ())) for schema in found["components"]["schemas"].values()
    ]
    assert {"left"} in fields
    assert {"right"} in fields
    assert found["paths"]["/a"]["post"]["security"] == []
    assert found["paths"]["/a"]["post"]["summary"] == "Some words"
    both = found["paths"]["/b/{id}"]
    assert {operation["operationId"] for operation in both.values()} == {"delete_b_id", "put_b_id"}
    assert [parameter["name"] for parameter in both["put"]["parameters"]] == ["id"]
    schemathesis.openapi.from_dict(found).validate()


def test_the_page_may_run_its_own_script_and_nothing_else() -> None:
    response = ask(served(), "GET", PAGE)
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = dict(
        rule.split(" ", 1) for rule in response.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    for element in ("script", "style"):
        [text] = re.findall(f"<{element}>(.*?)</{element}>", response.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert policy[f"{element}-src"] == f"'sha256-{digest}'"


def test_the_page_needs_nothing_from_elsewhere() -> None:
    page = ask(served(), "GET", PAGE).text
    assert "://" not in page
    assert re.findall(r'(?:src|href)="([^"]*)"', page) == ["data:,"]
    assert re.findall(r'json\("([^"]*)"', page) == ["/v1/models", "openapi.json"]
    assert "innerHTML" not in page


@pytest.mark.parametrize("path", [DOCUMENT, PAGE])
def test_documents_are_read_only(path: str) -> None:
    assert ask(served(), "POST", path).status_code == 405
    assert ask(served(), "HEAD", path).is_success
