"""The routes of the whole server: slots, properties, models, metrics, health."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.model_status import DEMO_SOURCE, ModelState, ModelStatus
from deployments.engine.limits import EngineLimits
from deployments.ingress.settings import IngressSettings
from deployments.telemetry.metric_families import MetricFamily
from tests.ingress.clusters import STATS, CountingCluster
from tests.ingress.engines import says
from tests.llama.serving import events_of, refusal, send, served
from tests.openai.serving import http
from tests.text.cards import CHAT_TEMPLATE, card


def asked(cluster: CountingCluster, path: str, method: str = "GET", **more: Any) -> httpx.Response:
    return asyncio.run(send(cluster, method, path, **more))


def tiny() -> CountingCluster:
    return CountingCluster(says("x"), card())


def test_a_running_request_is_a_slot() -> None:
    slots = asked(tiny(), "/slots").json()
    assert [slot["id"] for slot in slots] == [0, 1, 2, 3]
    assert [slot["is_processing"] for slot in slots] == [True, False, False, False]
    assert slots[0] == {"id": 0, "n_ctx": 512, "speculative": False, "is_processing": True}
    guessing = tiny()
    guessing.limits = EngineLimits(max_running=2, draft_tokens=4)
    assert all(slot["speculative"] for slot in asked(guessing, "/slots").json())


def test_it_may_be_asked_whether_a_slot_is_idle() -> None:
    cluster = tiny()
    assert asked(cluster, "/slots?fail_on_no_slot=1").status_code == 200
    cluster.stats = ({**STATS, "active_requests": 9.0},)
    refusal(asked(cluster, "/slots?fail_on_no_slot=1"), 503)
    assert len(asked(cluster, "/slots?fail_on_no_slot=0").json()) == 2


def test_the_properties_are_those_of_the_model_and_of_all_its_replicas() -> None:
    props = asked(tiny(), "/props?model=tiny").json()
    assert props["total_slots"] == 4
    assert props["default_generation_settings"]["n_ctx"] == 512
    params = props["default_generation_settings"]["params"]
    assert (params["temperature"], params["seed"], params["n_predict"]) == (0.8, 2**32 - 1, -1)
    assert "grammar" not in params
    assert props["chat_template"] == CHAT_TEMPLATE
    assert props["eos_token"] == "<|im_end|>"
    assert props["modalities"] == {"vision": False, "video": False, "audio": False}


def test_what_the_template_can_do_is_tried_out() -> None:
    caps = asked(tiny(), "/props").json()["chat_template_caps"]
    assert caps["supports_system_role"]
    assert caps["supports_tool_calls"]
    assert caps["supports_parallel_tool_calls"]
    assert not caps["supports_tools"]
    assert not caps["supports_preserve_reasoning"]
    own = replace(card(), tool_template="{{ tools }}")
    props = asked(CountingCluster(says("x"), own), "/props").json()
    assert props["chat_template_caps"]["supports_tools"]
    assert props["chat_template_tool_use"] == own.tool_template
    none = CountingCluster(says("x"), card(chat_template=None))
    assert not any(asked(none, "/props").json()["chat_template_caps"].values())


def test_a_model_thinks_whose_template_has_the_mark_of_its_thoughts() -> None:
    def thinks(**templates: Any) -> bool:
        of_model = CountingCluster(says("x"), replace(card(), **templates))
        caps = asked(of_model, "/props").json()["chat_template_caps"]
        return bool(caps["supports_thinking"])

    assert not thinks()
    assert thinks(chat_template=CHAT_TEMPLATE + "{% if add_generation_prompt %}<think>{% endif %}")
    assert not thinks(chat_template=CHAT_TEMPLATE + "[TOOL_CALLS]<think>")  # Mistral's are others
    assert thinks(chat_template=CHAT_TEMPLATE + "[TOOL_CALLS][THINK]")


# As Mistral's, whose marks name the dialect.
PARTICULAR = """{% for m in messages %}{% for c in m.tool_calls or [] %}[TOOL_CALLS]
{%- if c.id | length != 9 %}{{ raise_exception('Tool call IDs should have length 9!') }}{% endif %}
{{- c.function }}{% endfor %}{% endfor %}{{ tools }}"""


@pytest.mark.parametrize("name", ["chat_template", "tool_template"])
def test_calls_are_tried_out_as_the_template_for_them_takes_them(name: str) -> None:
    templates: dict[str, Any] = {name: PARTICULAR}
    particular = CountingCluster(says("x"), replace(card(), **templates))
    caps = asked(particular, "/props").json()["chat_template_caps"]
    assert caps["supports_tools"]
    assert caps["supports_tool_calls"]
    assert caps["supports_parallel_tool_calls"]


def test_models_are_listed_in_both_shapes() -> None:
    cluster = CountingCluster(says("x"), card(), card(name="other"))
    body = asked(cluster, "/models").json()
    assert [entry["name"] for entry in body["models"]] == ["tiny", "other"]
    assert [entry["id"] for entry in body["data"]] == ["tiny", "other"]
    assert body["data"][0]["meta"]["n_ctx"] == 512


def test_what_is_switched_off_says_so_without_a_code() -> None:
    for path in ("/cors-proxy?url=http://x", "/tools"):
        response = asked(tiny(), path)
        assert response.status_code == 403
        error = {"message": "this feature is disabled", "type": "feature_disabled"}
        assert response.json() == {"error": error}


def test_downloads_are_off_until_an_operator_names_a_folder() -> None:
    for method, path, body in (
        ("POST", "/models", {"model": "org/name"}),
        ("DELETE", "/models?model=tiny", None),
    ):
        error = refusal(asked(tiny(), path, method, json=body), 403)
        assert error["type"] == "feature_disabled"
        assert "downloads_dir" in error["message"]
    refusal(asked(tiny(), "/models", "DELETE"), 400)
    refusal(asked(tiny(), "/models", "POST", json={"model": "a/b", "path": "/"}), 400)


def counter(name: str, value: float) -> MetricFamily:
    return MetricFamily(name, "text", "counter", ((f"{name}_total", {}, value),))


def gauge(name: str, value: float) -> MetricFamily:
    return MetricFamily(name, "text", "gauge", ((name, {}, value),))


def test_metrics_have_llama_servers_names_too() -> None:
    cluster = tiny()
    cluster.families = (
        counter("manta_prefix_cache_queries", 30.0),
        counter("manta_prefix_cache_hits", 10.0),
        counter("manta_engine_generation_tokens", 7.0),
        counter("manta_engine_drafts", 2.0),
        counter("manta_engine_drafted_tokens", 5.0),
        MetricFamily(
            "manta_engine_accepted_tokens_per_position",
            "text",
            "counter",
            (("manta_engine_accepted_tokens_per_position_total", {"position": "1"}, 4.0),),
        ),
        counter("manta_engine_accepted_tokens", 3.0),
        gauge("manta_running_requests", 1.0),
        gauge("manta_prompt_throughput", 900.5),
        gauge("manta_generation_throughput", 80.25),
    )
    response = asked(cluster, "/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = response.text.splitlines()
    # A replica by itself: what is summed falls when one goes, and rates take that for a restart.
    for replica in ('{replica="0"}', '{replica="1"}'):
        assert f"llamacpp:prompt_tokens_total{replica} 20.0" in lines
        assert f"llamacpp:prompt_tokens_cached_total{replica} 10.0" in lines
        assert f"llamacpp:tokens_predicted_total{replica} 7.0" in lines
        assert f"llamacpp:spec_decode_num_drafts_total{replica} 2.0" in lines
        per_position = replica.replace("{", '{position="1",')
        name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
        assert f"{name}{per_position} 4.0" in lines
        assert f"llamacpp:spec_decode_num_draft_tokens_total{replica} 5.0" in lines
        assert f"llamacpp:spec_decode_num_accepted_tokens_total{replica} 3.0" in lines
        assert f"llamacpp:requests_processing{replica} 1.0" in lines
        assert f"llamacpp:prompt_tokens_seconds{replica} 900.5" in lines
        assert f"llamacpp:predicted_tokens_seconds{replica} 80.25" in lines
    assert "# TYPE llamacpp:prompt_tokens_seconds gauge" in lines
    assert lines.count("# TYPE llamacpp:prompt_tokens_total counter") == 1
    assert 'manta_running_requests{replica="1"} 1.0' in lines
    assert int(response.headers["process-start-time-unix"]) > 1_700_000_000


class Routerless(CountingCluster):
    """A cluster whose router does not answer."""

    asked: tuple[str, ...] = ()
    asked_meanwhile: tuple[str, ...] = ()

    async def broadcast(
        self, application: str, deployment: str, method: str, *args: object
    ) -> list[object]:
        self.asked += (application,)
        return []

    async def statuses(self, timeout_s: float = 1.0) -> list[ModelStatus]:
        for _ in range(10):
            await asyncio.sleep(0)
        self.asked_meanwhile = self.asked
        raise Refused.of_kind(ErrorKind.UNAVAILABLE, "no router")


def test_metrics_of_ingresses_do_not_wait_for_a_router_that_hangs() -> None:
    cluster = Routerless(says("x"), card())
    assert asked(cluster, "/metrics").status_code == 200
    assert set(cluster.asked_meanwhile) == {"openai", "anthropic", "llama", "router"}


def test_health_and_statistics_are_still_there() -> None:
    assert asked(tiny(), "/health").json() == {"status": "ok", "model_loaded": True}
    assert asked(tiny(), "/stats").json()["total_requests"] == 14
    names = asked(tiny(), "/dynamo/alpha/list-models").json()
    assert names == {"chat_completion_models": ["tiny"], "completion_models": ["tiny"]}


async def test_who_opens_the_address_in_a_browser_is_shown_the_docs() -> None:
    async with http(served(tiny(), IngressSettings(api_keys=("k",)))) as client:
        shown = await client.get("/", follow_redirects=True)
    assert (shown.status_code, shown.url.path) == (200, "/docs")
    assert shown.headers["content-type"].startswith("text/html")


class WithPage(CountingCluster):
    asked = 0

    async def broadcast(
        self, application: str, deployment: str, method: str, *args: object
    ) -> list[object]:
        if (application, deployment, method) != ("web", "web", "is_up"):
            return await super().broadcast(application, deployment, method, *args)
        self.asked += 1
        return [True]


def test_who_opens_the_address_of_a_server_with_a_page_is_led_to_it() -> None:
    cluster = WithPage(says("x"), card())

    async def asks() -> list[httpx.Response]:
        async with http(served(cluster)) as client:
            return await asyncio.gather(*(client.get("/") for _ in range(5)))

    redirects = [
        (response.status_code, response.headers["location"]) for response in asyncio.run(asks())
    ]
    assert redirects == [(307, "ui/")] * 5
    assert cluster.asked == 1


def test_openais_endpoints_are_there_without_v1() -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}]}
    answer = asked(tiny(), "/chat/completions", "POST", json=body).json()
    assert answer["choices"][0]["message"]["content"] == "x"
    counted = asked(tiny(), "/chat/completions/input_tokens", "POST", json=body).json()
    assert counted["input_tokens"] == answer["usage"]["prompt_tokens"]
    made = asked(tiny(), "/responses", "POST", json={"input": "Hello"}).json()
    assert made["status"] == "completed"


def test_a_chat_that_fills_the_context_is_refused_with_both_numbers() -> None:
    body = {"messages": [{"role": "user", "content": "word " * 600}]}
    error = refusal(asked(tiny(), "/chat/completions", "POST", json=body), 400)
    assert error["type"] == "exceed_context_size_error"
    assert error["n_prompt_tokens"] > error["n_ctx"] == 512


async def test_a_native_stream_is_found_again_by_its_conversation() -> None:
    async with http(served(tiny())) as client:
        headers, body = {"x-conversation-id": "c1"}, {"prompt": "a", "stream": True}
        streamed, again, rest = (
            await client.post("/completion", json=body, headers=headers),
            await client.get("/stream?conv_id=c1"),
            await client.get("/v1/stream?conv_id=c1&from=5"),
        )
    assert events_of(streamed.text)[-1]["stop"] is True
    assert again.content == streamed.content
    assert rest.content == streamed.content[5:]


def test_every_endpoint_is_documented_with_its_schema() -> None:
    document = asked(tiny(), "/openapi.json").json()
    body = document["paths"]["/completion"]["post"]["requestBody"]["content"]["application/json"]
    name = body["schema"]["$ref"].rpartition("/")[2]
    assert "dry_sequence_breakers" in document["components"]["schemas"][name]["properties"]
    assert {"/infill", "/tokenize", "/props", "/slots", "/health"} <= set(document["paths"])
    parameters = document["paths"]["/slots"]["get"]["parameters"]
    assert [(parameter["name"], parameter["in"]) for parameter in parameters] == [
        ("model", "query"),
        ("fail_on_no_slot", "query"),
    ]


def unloaded(*names: str) -> CountingCluster:
    cluster = CountingCluster(says("x"), card(), card(name="other"))
    cluster.states = dict.fromkeys(names, ModelState.UNLOADED)
    return cluster


def test_reading_the_properties_of_a_model_does_not_load_it() -> None:
    for path in ("/props", "/slots"):
        error = refusal(asked(unloaded("other"), f"{path}?model=other"), 503)
        assert "'other' is not loaded" in error["message"]
    body = asked(unloaded("other"), "/models").json()
    assert ["meta" in entry for entry in body["data"]] == [True, False]
    assert asked(unloaded("other"), "/dynamo/alpha/list-models").json()["completion_models"] == [
        "tiny"
    ]


def test_reading_the_properties_of_a_model_does_not_start_a_replica() -> None:
    cluster = tiny()
    cluster.replicas = 0
    cluster.states = {"tiny": ModelState.SLEEPING}
    error = refusal(asked(cluster, "/props"), 503)
    assert "no replica" in error["message"]
    assert "meta" not in asked(cluster, "/models").json()["data"][0]
    assert cluster.cards_asked == 0


def test_the_properties_of_several_models_are_requested_by_name() -> None:
    cluster = CountingCluster(says("x"), card(), card(name="other"))
    assert asked(cluster, "/props").json()["role"] == "router"
    assert asked(cluster, "/props?model=other").json()["model_alias"] == "other"


def test_a_server_whose_models_wait_for_requests_is_healthy() -> None:
    assert asked(unloaded("other"), "/health").json() == {"status": "ok", "model_loaded": True}
    idle = asked(unloaded("tiny", "other"), "/health")
    assert (idle.status_code, idle.json()) == (200, {"status": "ok", "model_loaded": False})
    leaving = tiny()
    leaving.states = {"tiny": ModelState.UNLOADING}
    assert asked(leaving, "/health").json() == {"status": "ok", "model_loaded": False}


def test_a_demo_beside_the_demo_model_is_none_that_clients_mean() -> None:
    cluster = unloaded("other")
    cluster.sources = {"other": DEMO_SOURCE}
    assert asked(cluster, "/props").json()["model_alias"] == "tiny"
    cluster.states["tiny"] = ModelState.LOADING
    assert asked(cluster, "/health").status_code == 503


def test_a_model_that_failed_is_let_requests_through_that_try_it_again() -> None:
    cluster = tiny()
    cluster.states = {"tiny": ModelState.FAILED}
    waiting = asked(cluster, "/health")
    assert (waiting.status_code, waiting.json()) == (200, {"status": "ok", "model_loaded": False})
    cluster.will_retry = True
    broken = asked(cluster, "/health")
    assert (broken.status_code, broken.json()["status"]) == (503, "error")


def test_a_sleeping_model_is_seen_and_not_woken() -> None:
    cluster = tiny()
    cluster.states = {"tiny": ModelState.SLEEPING}
    assert asked(cluster, "/props").json()["is_sleeping"] is True
    assert asked(cluster, "/health").json()["model_loaded"] is True
    assert asked(cluster, "/models").json()["data"][0]["status"]["value"] == "sleeping"
    assert cluster.requests == []
