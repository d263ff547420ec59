"""Unsupported requests are refused with llama-server's error body, which names the field."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.ingress.engines import says
from tests.llama.serving import COMPLETION, CountingCluster, ask, refusal, send
from tests.text.cards import card

WRONG: list[tuple[dict[str, object], str]] = [
    ({"prompt": None}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": ""}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [[]]}, "prompt[0]"),
    ({"prompt": [""]}, "prompt"),
    ({"prompt": [True]}, "prompt[0]"),
    ({"prompt": [-1]}, "prompt[0]"),
    ({"prompt": [10**6]}, "prompt"),
    ({"prompt": [1, [2]]}, "prompt"),
    ({"prompt": [1, {"prompt_string": "a"}]}, "prompt"),
    ({"prompt": ["a"] * 1025}, "prompt"),
    ({"prompt": [1, *[""] * 4097]}, "prompt"),
    ({"prompt": [[1, *["a"] * 2048]] * 2 + [[2, "a"]]}, "prompt"),
    ({"prompt": {"prompt_string": "a", "multimodal_data": ["x"]}}, "prompt.multimodal_data[0]"),
    ({"prompt": {"text": "a"}}, "prompt.prompt_string"),
    ({"n_predict": -2}, "n_predict"),
    ({"n_predict": 1.5}, "n_predict"),
    ({"n_predict": "5"}, "n_predict"),
    ({"n_predict": 2, "max_tokens": 3}, "n_predict"),
    ({"n_cmpl": 0}, "n_cmpl"),
    ({"n": 129}, "n"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": "1"}, "temperature"),
    ({"top_p": 7}, "top_p"),
    ({"top_p": -0.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"typical_p": 2}, "typical_p"),
    ({"top_n_sigma": -2}, "top_n_sigma"),
    ({"xtc_probability": 2}, "xtc_probability"),
    ({"xtc_threshold": -1}, "xtc_threshold"),
    ({"dynatemp_range": -1}, "dynatemp_range"),
    ({"repeat_penalty": 0}, "repeat_penalty"),
    ({"repeat_last_n": -2}, "repeat_last_n"),
    ({"presence_penalty": "x"}, "presence_penalty"),
    ({"dry_multiplier": -1}, "dry_multiplier"),
    ({"dry_base": 0.5}, "dry_base"),
    ({"dry_sequence_breakers": []}, "dry_sequence_breakers"),
    ({"dry_sequence_breakers": [""]}, "dry_sequence_breakers[0]"),
    (
        {"dry_sequence_breakers": ["no token is so long"], "dry_multiplier": 1},
        "dry_sequence_breakers",
    ),
    ({"mirostat": 3}, "mirostat"),
    ({"mirostat_tau": -1}, "mirostat_tau"),
    ({"samplers": ["top_k", "magic"]}, "samplers"),
    ({"samplers": ["infill", "magic"]}, "samplers"),
    ({"samplers": "kz"}, "samplers"),
    ({"samplers": "k" * 33}, "samplers"),
    ({"samplers": 5}, "samplers"),
    ({"adaptive_target": 0.5}, "adaptive_target"),
    ({"min_keep": -1}, "min_keep"),
    ({"seed": -2}, "seed"),
    ({"seed": 2**63}, "seed"),
    ({"logit_bias": [[66]]}, "logit_bias[0]"),
    ({"logit_bias": [[66, "x"]]}, "logit_bias[0]"),
    ({"logit_bias": [[66, True]]}, "logit_bias"),
    ({"logit_bias": [[1.5, 1]]}, "logit_bias[0]"),
    ({"logit_bias": [[-1, 1]]}, "logit_bias[0]"),
    ({"logit_bias": {"99999": 1}}, "logit_bias"),
    ({"logit_bias": {"5": "x"}}, "logit_bias.5"),
    ({"logit_bias": {"a" * 1025: 1}}, f"logit_bias.{'a' * 1025}"),
    ({"logit_bias": [["a" * 1025, 1]]}, "logit_bias[0][0]"),
    ({"logit_bias": [["a", 1]] * 4097}, "logit_bias"),
    ({"logit_bias": {f"a{number}": 1 for number in range(4097)}}, "logit_bias"),
    ({"n_probs": -1}, "n_probs"),
    ({"n_probs": 101}, "n_probs"),
    ({"stop": ""}, "stop"),
    ({"stop": ["a", ""]}, "stop[1]"),
    ({"stop": ["a"] * 65}, "stop"),
    ({"stop": 5}, "stop"),
    ({"ignore_eos": 1}, "ignore_eos"),
    ({"n_indent": -1}, "n_indent"),
    ({"t_max_predict_ms": -2}, "t_max_predict_ms"),
    ({"grammar": "nonsense"}, "grammar"),
    ({"grammar": 'root ::= "a"', "json_schema": {}}, "json_schema"),
    ({"json_schema": {"type": "hiccup"}}, "json_schema"),
    ({"json_schema": []}, "json_schema"),
    ({"grammar_lazy": True}, "grammar_lazy"),
    ({"cache_prompt": "yes"}, "cache_prompt"),
    ({"id_slot": -2}, "id_slot"),
    ({"n_keep": -2}, "n_keep"),
    ({"n_discard": 5}, "n_discard"),
    ({"n_cache_reuse": 64}, "n_cache_reuse"),
    ({"lora": [{"id": 0, "scale": 1}]}, "lora[0].id"),
    ({"lora": {"id": 0}}, "lora"),
    ({"lora": [{"id": 0, "scale": 101}]}, "lora[0].scale"),
    ({"speculative.n_max": -1}, "speculative.n_max"),
    ({"speculative.p_min": 2}, "speculative.p_min"),
    ({"speculative.types": 5}, "speculative.types"),
    ({"return_progress": 1.5}, "return_progress"),
    ({"response_fields": "content"}, "response_fields"),
    ({"sse_ping_interval": 0}, "sse_ping_interval"),
    ({"sse_ping_interval": 1.5}, "sse_ping_interval"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"backend_sampling": 1}, "backend_sampling"),
    ({"typical_p": 1, "typ_p": 1}, "typ_p"),
    ({"unknown_field": 1}, "unknown_field"),
    ({"messages": []}, "messages"),
    ({"model": 5}, "model"),
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


@pytest.mark.parametrize("body", [b"", b"{no", b"[]", b'{"prompt": NaN}'])
def test_a_body_that_is_no_json_object_is_the_clients_fault(body: bytes) -> None:
    headers = {"content-type": "application/json"}
    refusal(asks("POST", COMPLETION, content=body, headers=headers), 400)


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


def test_an_unknown_model_is_404() -> None:
    error = refusal(ask(says("x"), COMPLETION, {"prompt": "x", "model": "nope"}), 404)
    assert error["param"] == "model"
