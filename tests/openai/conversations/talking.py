"""The application over a store of its own, asked by OpenAI's SDK and by plain HTTP."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
from openai import AsyncOpenAI

from deployments.openai.responses.database_store import DatabaseStore
from deployments.store.limits import KeptLimits
from tests.ingress.engines import ScriptedEngine
from tests.openai.responses.responding import ROOMY
from tests.openai.serving import http, sdk, served

CONVERSATIONS = "/v1/conversations"


def visit(url: str, script: Any, asks: Callable[[AsyncOpenAI], Awaitable[None]]) -> ScriptedEngine:
    engine = ScriptedEngine(script, ROOMY)

    async def run() -> None:
        store = DatabaseStore(url)
        try:
            async with sdk(served(engine, store=store)) as client:
                await asks(client)
        finally:
            await store.close()

    asyncio.run(run())
    return engine


def ask(
    url: str,
    script: Any,
    asks: Callable[[httpx.AsyncClient], Awaitable[Any]],
    *,
    api_keys: tuple[str, ...] = (),
    **limits: int,
) -> Any:
    async def run() -> Any:
        store = DatabaseStore(url, KeptLimits(**limits))
        try:
            app = served(ScriptedEngine(script, ROOMY), store=store, api_keys=api_keys)
            async with http(app) as client:
                return await asks(client)
        finally:
            await store.close()

    return asyncio.run(run())
