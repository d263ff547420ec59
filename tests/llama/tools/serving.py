"""The root application with its tools on, in a folder of their own."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
from starlette.types import ASGIApp

from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.llama.tools.search_process import answer_of
from deployments.llama.tools.settings import ToolSettings
from serve_app.applications.llama import app
from tests.ingress.clusters import CountingCluster
from tests.ingress.engines import says
from tests.text.cards import card


def served(folder: Path, cors_origins: tuple[str, ...] = ()) -> ASGIApp:
    tools = ToolSettings(folder=str(folder), hosts=("manta.example",))
    settings = IngressSettings(cors_origins=cors_origins)
    return app(CountingCluster(says("x"), card()), Metrics(), settings, tools)


def asked(
    folder: Path,
    method: str,
    *,
    base: str = "http://localhost:8000",
    cors_origins: tuple[str, ...] = (),
    **request: Any,
) -> httpx.Response:
    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(served(folder, cors_origins))
        async with httpx.AsyncClient(transport=transport, base_url=base) as client:
            return await client.request(method, "/tools", **request)

    return asyncio.run(ask())


def called(
    folder: Path, tool: str, headers: dict[str, str] | None = None, /, **params: object
) -> Any:
    """Calls a tool and returns its answer."""
    body = {"tool": tool, "params": params}
    response = asked(folder, "POST", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()


def searched(folder: Path, tool: str, **params: object) -> Any:
    """Searches in this process: a process of its own takes a part of a second to start."""
    return answer_of({"name": tool, "params": params, "root": str(folder), "cwd": ()})


def failed(
    folder: Path, tool: str, headers: dict[str, str] | None = None, /, **params: object
) -> str:
    """Returns why a tool could not answer."""
    [(name, message)] = called(folder, tool, headers, **params).items()
    assert name == "error"
    return str(message)
