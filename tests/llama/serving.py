"""The root application over a scripted engine and replicas that only count, without a socket."""

from collections.abc import Mapping
from typing import Any

import httpx
from starlette.types import ASGIApp

from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import DEFAULTS, IngressSettings
from serve_app.applications.llama import app
from tests.ingress.clusters import CountingCluster
from tests.ingress.edge import asked
from tests.ingress.engines import Script
from tests.ingress.protocols.native import NATIVE, data_of
from tests.openai.serving import http

COMPLETION = NATIVE.path
events_of, whole, streamed = data_of, NATIVE.whole, NATIVE.streamed


def served(cluster: CountingCluster, settings: IngressSettings = DEFAULTS) -> ASGIApp:
    return app(cluster, Metrics(), settings)


async def send(cluster: CountingCluster, method: str, path: str, **request: Any) -> httpx.Response:
    async with http(served(cluster)) as client:
        return await client.request(method, path, **request)


def ask(script: Script, path: str, body: Mapping[str, object]) -> httpx.Response:
    """One request to an engine of its own."""
    return asked(path, body, script=script).response


def refusal(response: httpx.Response, status: int) -> Any:
    """The error of an answer, in llama-server's form."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    [(name, error)] = response.json().items()
    assert name == "error"
    assert error["code"] == status
    assert error["message"]
    assert error["type"]
    return error
