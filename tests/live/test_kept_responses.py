"""Responses are found whichever replica of `openai` is asked, and after a restart."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from ray import serve
from starlette.types import ASGIApp

from deployments.ingress.deployment import ProtocolIngress, ingress_deployment
from deployments.ingress.fleet.fleet import Fleet
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.ingress.streams.resumable_streams import ResumableStreams
from deployments.openai.responses.database_store import store_at
from deployments.openai.routes import app
from tests.ingress.engines import ScriptedEngine, says
from tests.live.fleet import CALL_S, delete
from tests.openai.serving import http

pytestmark = pytest.mark.timeout(300)

NAME = "answering"
RESPONSES, CONVERSATIONS = "/v1/responses", "/v1/conversations"


@ingress_deployment(NAME)
class Answering(ProtocolIngress):
    """OpenAI's ingress over a scripted engine."""

    def __init__(self, settings: IngressSettings, store: str) -> None:
        super().__init__(settings)
        self._store = store

    def app(
        self,
        fleet: Fleet,
        metrics: Metrics,
        settings: IngressSettings,
        streams: ResumableStreams,
    ) -> ASGIApp:
        engine = ScriptedEngine(says("Hello there"))
        self._served = app(engine, metrics, settings, streams, store_at(self._store))
        return self._served

    async def ask(self, replica: str, method: str, path: str, body: object) -> Any:
        """Returns the id, status and JSON of the replica with this id; None on any other."""
        own = serve.get_replica_context().replica_id.unique_id
        if replica != own:
            return None
        async with http(self._served) as client:
            answer: httpx.Response = await client.request(method, path, json=body)
            return own, answer.status_code, answer.json()


class Replicas:
    def __init__(self, store: str) -> None:
        bound = Answering.options(num_replicas=2).bind(IngressSettings(hosts=("manta",)), store)  # type: ignore[attr-defined]
        self._handle = serve.run(bound, name=NAME, route_prefix=None)
        labels = self._handle.broadcast("samples").results(timeout_s=CALL_S)
        self.ids = sorted(replica_labels["replica"] for replica_labels, _ in labels)

    def ask(self, replica: int, method: str, path: str, body: object = None) -> Any:
        """The JSON of an answer that is a 200."""
        asked = self._handle.broadcast("ask", self.ids[replica], method, path, body)
        [said] = [result for result in asked.results(timeout_s=CALL_S) if result is not None]
        own, status, answer = said
        assert (own, status) == (self.ids[replica], 200), answer
        return answer


@pytest.fixture
def store(tmp_path: Path) -> Iterator[str]:
    yield f"sqlite:///{tmp_path / 'store.db'}"
    delete(NAME)


def test_all_replicas_have_one_store_which_outlives_them(store: str) -> None:
    first = Replicas(store)
    talk = first.ask(0, "POST", CONVERSATIONS, {"metadata": {"topic": "greetings"}})
    asked = {"input": "Hello", "conversation": talk["id"]}
    made = first.ask(0, "POST", RESPONSES, asked)
    assert first.ask(1, "GET", f"{RESPONSES}/{made['id']}") == made
    continued = {"input": "And?", "previous_response_id": made["id"]}
    more = first.ask(1, "POST", RESPONSES, continued)
    assert len(first.ask(0, "GET", f"{RESPONSES}/{more['id']}/input_items")["data"]) == 3
    delete(NAME)

    second = Replicas(store)
    assert not set(first.ids) & set(second.ids)
    assert second.ask(1, "GET", f"{RESPONSES}/{made['id']}") == made
    assert second.ask(0, "GET", f"{CONVERSATIONS}/{talk['id']}") == talk
    listed = second.ask(1, "GET", f"{CONVERSATIONS}/{talk['id']}/items?order=asc")
    assert listed["data"][-1] == made["output"][0]
    second.ask(0, "POST", RESPONSES, {"input": "More?", "previous_response_id": more["id"]})
