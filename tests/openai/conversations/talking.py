"""The application over a store of its own, asked by OpenAI's SDK and by plain HTTP."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
from openai import AsyncOpenAI

from deployments.openai.responses.database_store import DatabaseStore
from deployments.store.limits import KeptLimits
from tests.ingress.engines import ScriptedEngine
from tests.openai.responses.responding import ROOMY
from tests.openai.serving import http, sdk, served

CONVERSATIONS = "/v1/conversations"


@asynccontextmanager
async def visiting(url: str, script: Any) -> AsyncIterator[tuple[AsyncOpenAI, ScriptedEngine]]:
    engine, store = ScriptedEngine(script, ROOMY), DatabaseStore(url)
    try:
        async with sdk(served(engine, store=store)) as client:
            yield client, engine
    finally:
        await store.close()


@asynccontextmanager
async def asking(
    url: str, script: Any, *, api_keys: tuple[str, ...] = (), **limits: int
) -> AsyncIterator[httpx.AsyncClient]:
    store = DatabaseStore(url, KeptLimits(**limits))
    try:
        app = served(ScriptedEngine(script, ROOMY), store=store, api_keys=api_keys)
        async with http(app) as client:
            yield client
    finally:
        await store.close()
