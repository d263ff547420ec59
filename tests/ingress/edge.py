"""Applications under an operator's settings, and one request to them."""

import asyncio
from typing import Any

import httpx
from starlette.types import ASGIApp

from deployments.anthropic.routes import app as anthropic_app
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.llama.routes import app as llama_app
from deployments.openai.routes import app
from tests.ingress.engines import Script, ScriptedEngine, says
from tests.llama.serving import CountingCluster
from tests.openai.serving import http


def served(script: Script | None = None, settings: IngressSettings = DEFAULTS) -> ASGIApp:
    return app(ScriptedEngine(script or says("Hello there")), Metrics(), settings)


def every(settings: IngressSettings = DEFAULTS) -> dict[str, ASGIApp]:
    """One application a protocol."""
    engine = CountingCluster(says("Hello there"))
    return {
        "openai": app(engine, Metrics(), settings),
        "anthropic": anthropic_app(engine, Metrics(), settings),
        "llama": llama_app(engine, Metrics(), settings),
    }


def ask(served_app: ASGIApp, method: str, path: str, **request: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        async with http(served_app) as client:
            return await client.request(method, path, **request)

    return asyncio.run(send())
