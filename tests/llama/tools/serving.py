"""The root application with its tools on, in a folder of their own."""

import asyncio
from pathlib import Path
from typing import Any

import httpx

from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.llama.routes import app
from deployments.llama.tools.settings import ToolSettings
from tests.ingress.engines import says
from tests.llama.serving import CountingCluster
from tests.text.cards import card


def asked(
    folder: Path,
    method: str,
    *,
    base: str = "http://localhost:8000",
    cors_origins: tuple[str, ...] = (),
    **request: Any,
) -> httpx.Response:
    tools = ToolSettings(folder=str(folder), hosts=("manta.example",))
    settings = IngressSettings(cors_origins=cors_origins)
    served = app(CountingCluster(says("x"), card()), Metrics(), settings, tools)

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(served)
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            return await client.request(method, "/tools", **request)

    return asyncio.run(ask())


def called(
    folder: Path, tool: str, headers: dict[str, str] | None = None, /, **params: object
) -> Any:
    """What a tool answers."""
    body = {"tool": tool, "params": params}
    response = asked(folder, "POST", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def failed(
    folder: Path, tool: str, headers: dict[str, str] | None = None, /, **params: object
) -> str:
    """Why a tool could not answer."""
    [(name, message)] = called(folder, tool, headers, **params).items()
    assert name == "error"
    return str(message)
