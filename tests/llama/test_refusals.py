"""Unsupported requests are refused with llama-server's error body, which names the field."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.ingress.clusters import CountingCluster
from tests.ingress.engines import says
from tests.llama.serving import COMPLETION, ask, refusal, send
from tests.text.cards import card

WRONG: list[tuple[dict[str, object], str]] = [
    ({"prompt": [""]}, "prompt"),
    ({"prompt": [1, {"prompt_string": "a"}]}, "prompt"),
    ({"prompt": [[1, *["a"] * 2048]] * 2 + [[2, "a"]]}, "prompt"),
    ({"n_predict": 2, "max_tokens": 3}, "n_predict"),
    (
        {"dry_sequence_breakers": ["no token is so long"], "dry_multiplier": 1},
        "dry_sequence_breakers",
    ),
    ({"logit_bias": {"a" * 1025: 1}}, f"logit_bias.{'a' * 1025}"),
    ({"logit_bias": {f"a{number}": 1 for number in range(4097)}}, "logit_bias"),
    ({"grammar": 'root ::= "a"', "json_schema": {}}, "json_schema"),
    ({"speculative.n_max": -1}, "speculative.n_max"),
    ({"speculative.p_min": 2}, "speculative.p_min"),
    ({"speculative.types": 5}, "speculative.types"),
    ({"typical_p": 1, "typ_p": 1}, "typ_p"),
]
NEUTRAL: list[dict[str, object]] = [
    {"n_keep": 5, "n_discard": 0, "n_cache_reuse": 0, "lora": [], "id_slot": 99},
    {"grammar": "", "grammar_lazy": False, "grammar_triggers": [], "preserved_tokens": []},
    {"adaptive_target": -1, "backend_sampling": False, "return_progress": False},
    {"stop": [], "response_fields": [], "logit_bias": [], "samplers": [], "json_schema": None},
    {"sse_ping_interval": -1, "t_max_predict_ms": -1, "temperature": None, "verbose": False},
    {"speculative.n_max": 16, "speculative.n_min": 0, "speculative.p_min": 0.75},
    {"speculative.types": "none", "stream_options": None, "backend_sampling": True},
    {"n_predict": 4, "max_tokens": 4},
]


@pytest.mark.parametrize(("body", "param"), WRONG)
def test_a_wrong_field_is_named(body: dict[str, object], param: str) -> None:
    error = refusal(ask(says("x"), COMPLETION, {"prompt": "x", **body}), 400)
    assert (error["param"], error["type"]) == (param, "invalid_request_error")


@pytest.mark.parametrize("body", NEUTRAL)
def test_what_asks_for_nothing_is_let_through(body: dict[str, object]) -> None:
    assert ask(says("x"), COMPLETION, {"prompt": "x", **body}).status_code == 200


def asks(method: str, path: str, **request: Any) -> httpx.Response:
    return asyncio.run(send(CountingCluster(says("x"), card()), method, path, **request))


@pytest.mark.parametrize("kind", ["", "application/x-www-form-urlencoded", "text/plain"])
@pytest.mark.parametrize("origin", ["", "http://evil.example", "null"])
@pytest.mark.parametrize(
    ("path", "content"), [(COMPLETION, b'{"prompt": "x"}'), ("/tokenize", b'{"content": "x"}')]
)
def test_a_body_of_no_type_is_json_unless_another_site_sends_it(
    kind: str, origin: str, path: str, content: bytes
) -> None:
    headers = {"content-type": kind} if kind else {}
    headers |= {"origin": origin} if origin else {}
    response = asks("POST", path, content=content, headers=headers)
    if kind == "text/plain" or origin:
        assert "content-type" in refusal(response, 415)["message"]
    else:
        assert response.status_code == 200, response.text


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_browser_says_that_another_site_asks(site: str) -> None:
    headers = {"sec-fetch-site": site}
    refusal(asks("POST", COMPLETION, content=b'{"prompt": "x"}', headers=headers), 415)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", COMPLETION, 405),
        ("DELETE", "/slots", 405),
        ("POST", "/slots/0?action=save", 501),
        ("POST", "/slots/x?action=save", 400),
        ("POST", "/slots/0?action=dance", 400),
        ("POST", "/props", 501),
        ("POST", "/audio/transcriptions", 415),
        ("GET", "/nothing", 404),
        ("GET", "/slots?model=nope", 404),
        ("GET", "/props?model=nope", 404),
        ("GET", "/slots?fail_on_no_slot=maybe", 400),
    ],
)
def test_unknown_paths_and_methods_have_their_own_status(
    method: str, path: str, status: int
) -> None:
    response = asks(method, path)
    error = refusal(response, status)
    assert error["message"] != "File Not Found"
    assert (status == 405) == ("allow" in response.headers)
