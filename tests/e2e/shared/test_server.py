"""The server as a whole, as an operator asks about it."""

import re

from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.server import DEFAULT, Server
from tests.e2e.shared.models import PAGES

SEED_STATS = {
    "active_requests",
    "waiting_requests",
    "total_requests",
    "cache_usage",
    "tokens_generated",
}


def test_health_says_that_a_model_is_loaded(server: Server) -> None:
    answer = server.http.get("/health")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "model_loaded": True})


def test_stats_count_what_was_generated(server: Server) -> None:
    server.rest()
    before = server.stats()
    assert before.keys() >= SEED_STATS
    body = {"prompt": "abc", "max_tokens": 7, "ignore_eos": True}
    server.http.post("/v1/completions", json=body).raise_for_status()
    after = server.stats()
    assert after["total_requests"] - before["total_requests"] == 1
    assert after["tokens_generated"] - before["tokens_generated"] == 7


def test_an_answer_that_ends_at_a_stop_string_is_no_aborted_one(server: Server) -> None:
    server.rest()
    before = server.stats()
    letters = list("etaoinshrdlucmfw")  # one of which comes soon, as all tokens are as likely
    body = {"prompt": "abc", "max_tokens": 400, "ignore_eos": True, "stop": letters}
    for stream in (False, True):
        answer = server.http.post("/v1/completions", json=body | {"stream": stream})
        assert '"finish_reason":"stop"' in answer.text
    server.rest()
    after = server.stats()
    assert after["total_requests"] - before["total_requests"] == 2
    assert after["aborted_requests"] == before["aborted_requests"]


def test_metrics_cover_the_whole_graph(server: Server) -> None:
    body = {"prompt": "abc", "max_tokens": 3}
    server.http.post("/v1/completions", json=body).raise_for_status()
    text = server.http.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    requests = families["manta_requests"].samples
    assert any(s.labels["model"] == "tiny" and s.value >= 1 for s in requests)
    pages = families["manta_kv_pages"].samples
    assert ("tiny", PAGES) in [(s.labels["model"], s.value) for s in pages]


@DEFAULT  # test_operate.py has the log of the other one
def test_a_request_is_one_line_of_the_log_with_its_endpoint_and_tokens(server: Server) -> None:
    """The log is text, as Serve writes it by default; tests/e2e/shared/test_operate.py has JSON."""

    def lines(about: str, *components: str) -> list[str]:
        folder = server.session / "logs" / "serve"
        files = (file for name in components for file in folder.glob(f"{name}*.log"))
        return [line for file in files for line in file.read_text().splitlines() if about in line]

    body = {"prompt": "abc", "max_tokens": 3, "ignore_eos": True}
    headers = {"x-request-id": "a-line-of-text"}
    server.http.post("/v1/completions?key=secret", json=body, headers=headers).raise_for_status()
    server.eventually(lambda: bool(lines("a-line-of-text", "replica_openai")))
    [line] = lines("a-line-of-text", "replica_openai")
    assert re.search(
        r" a-line-of-text .*-- POST /v1/completions 200 [\d.]+ms \d+ tokens in, 3 out$", line
    )
    assert not lines("key=secret", "")


def test_dynamos_model_list_has_both_kinds(server: Server) -> None:
    answer = server.http.get("/dynamo/alpha/list-models").json()
    assert answer.keys() == {"chat_completion_models", "completion_models"}
    assert all("tiny" in names for names in answer.values())


def test_it_answers_to_no_name_but_its_own(server: Server) -> None:
    for path in ("/v1/models", "/v1/messages", "/health"):
        evil = server.http.get(path, headers={"host": "evil.example"})
        assert evil.status_code == 421


def test_unknown_paths_and_methods_are_json_errors(server: Server) -> None:
    missing = server.http.get("/nothing")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, 404)
    wrong = server.http.post("/health")
    assert wrong.status_code == 405
    assert "GET" in wrong.headers["allow"]
    under = server.http.get("/v1/nothing")
    assert (under.status_code, under.json()["error"]["type"]) == (404, "invalid_request_error")
