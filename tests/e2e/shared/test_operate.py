"""An operator's view of a running server beside its answers: logs, spans, metrics, its end."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.server import THROUGHPUT, Server
from tests.e2e.shared.models import PAGES

pytestmark = THROUGHPUT  # that server is the one that is watched

BODY = {"prompt": "abc", "max_tokens": 4, "ignore_eos": True}
HISTOGRAM = "manta_time_to_first_token_seconds"


def ask(server: Server, request_id: str, **more: object) -> str:
    """The id that the answer carries."""
    headers = {"X-Request-ID": request_id} if request_id else {}
    answer = server.http.post("/v1/completions", json=BODY | more, headers=headers)
    answer.raise_for_status()
    return answer.headers["x-request-id"]


def lines_about(server: Server, request_id: str, application: str) -> list[dict[str, Any]]:
    """Returns what one application's replicas have logged of a request."""
    files = (server.session / "logs" / "serve").glob(f"replica_{application}_*.log")
    lines = (line for file in files for line in file.read_text().splitlines())
    # Of others' lines the last one may be half written.
    found = [json.loads(line) for line in lines if f'"{request_id}"' in line]
    return [line for line in found if line.get("request_id") == request_id]


def accesses(server: Server, request_id: str) -> list[dict[str, Any]]:
    """Returns the access lines, and no warning of a router that answers late."""
    return [line for line in lines_about(server, request_id, "openai") if "method" in line]


@pytest.mark.parametrize("given", ["an-id-of-the-clients", ""])
def test_one_id_leads_through_the_logs_of_ingress_and_model(server: Server, given: str) -> None:
    request_id = ask(server, given)
    assert request_id == (given or request_id) != ""
    server.eventually(lambda: bool(accesses(server, request_id)))
    server.eventually(lambda: bool(lines_about(server, request_id, "model-tiny")))
    (access,) = accesses(server, request_id)
    assert access["message"].startswith("POST /v1/completions 200 ")
    assert access["message"].endswith(" tokens in, 4 out")
    fields = {name: access[name] for name in ("method", "path", "status", "output_tokens")}
    assert fields == {
        "method": "POST",
        "path": "/v1/completions",
        "status": 200,
        "output_tokens": 4,
    }
    (end,) = lines_about(server, request_id, "model-tiny")
    assert re.fullmatch(r"sequence cmpl-\S+ ended: length", end["message"])
    assert end["application"] == "model-tiny"


def test_a_sequence_that_is_left_at_a_stop_string_ends_in_the_log_too(server: Server) -> None:
    letters = list("etaoinshrdlucmfw")  # one of which comes soon, as all tokens are as likely
    request_id = ask(server, "a-left-one", stop=letters, max_tokens=2000)
    server.eventually(lambda: bool(lines_about(server, request_id, "model-tiny")))
    (end,) = lines_about(server, request_id, "model-tiny")
    assert re.fullmatch(r"sequence cmpl-\S+ was left", end["message"])


def spans_of(server: Server, request_id: str) -> dict[str, dict[str, Any]]:
    """Maps names to spans: all spans of the traces that name a request."""
    files = (server.session / "logs" / "serve" / "spans").glob("*")
    spans = [span for file in files for span in decoded(file.read_text())]
    named = (span for span in spans if span["attributes"].get("request_id") == request_id)
    traces = {span["context"]["trace_id"] for span in named}
    return {span["name"]: span for span in spans if span["context"]["trace_id"] in traces}


def decoded(text: str) -> Iterator[dict[str, Any]]:
    """JSON objects one after the other; the last one may be half written."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        try:
            span, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:
            return
        at += len(text[at:]) - len(text[at:].lstrip())
        yield span


def test_a_request_is_one_trace_from_text_to_tokens(server: Server) -> None:
    parts = {
        "manta.prepare",
        "replica_handle_request openai __call__",
        "replica_handle_request Router choose",
        "replica_handle_request MantaModel generate",
    }
    asked: list[str] = []

    def is_whole() -> bool:
        """Asks again, and tells whether the trace of a request so far has all parts.

        A router that is too slow is passed by.
        """
        asked.append(ask(server, f"traced-{len(asked)}"))
        return any(parts <= spans_of(server, request_id).keys() for request_id in asked)

    server.eventually(is_whole)
    found = (spans_of(server, request_id) for request_id in asked)
    spans = next(trace for trace in found if parts <= trace.keys())
    assert len({spans[name]["context"]["trace_id"] for name in parts}) == 1
    ingress = spans["replica_handle_request openai __call__"]
    assert spans["manta.prepare"]["parent_id"] == ingress["context"]["span_id"]


def samples(text: str, name: str, **labels: str) -> dict[str, float]:
    """Values of one metric by `le`, summed over all else."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                bucket = sample.labels.get("le", "")
                found[bucket] = found.get(bucket, 0) + sample.value
    return found


def exported(server: Server) -> str:
    """Returns the metrics of Ray's own exporter, on the one node there is."""
    (port,) = server.session.glob("metrics_export_port_*")
    return httpx.get(f"http://127.0.0.1:{port.read_text().strip()}/metrics", timeout=60).text


def test_rays_exporter_says_what_metrics_says(server: Server) -> None:
    for _ in range(3):
        ask(server, "")

    def agree() -> bool:
        rays, ours = exported(server), server.http.get("/metrics").text
        counts = samples(ours, f"{HISTOGRAM}_bucket")
        pages = samples(rays, "ray_manta_kv_pages", model="tiny")
        drawn = samples(rays, "ray_manta_engine_generation_tokens_total")
        return (
            counts["+Inf"] >= 3
            and samples(rays, f"ray_{HISTOGRAM}_bucket") == counts
            and drawn == samples(ours, "manta_engine_generation_tokens_total")
            and pages == {"": float(PAGES)}
        )

    server.eventually(agree)
