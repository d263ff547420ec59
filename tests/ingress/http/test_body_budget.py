"""The bodies of all requests together are bounded, and so is each client's share of them."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from deployments.contract.errors import ErrorKind, Refused
from deployments.ingress.http.body_budget import FREE_BYTES, BodyAccount
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import IngressSettings
from deployments.openai.routes import app
from deployments.serving.fair_share import FairShare
from tests.ingress.edge import OVERLOADED, every, served
from tests.ingress.engines import ScriptedEngine, says
from tests.openai.serving import CHAT, COMPLETIONS, HELLO, http

BUDGET = 900 << 10
LARGEST = BUDGET * 9 // 10 + FREE_BYTES  # a client's share, and what is free
SETTINGS = IngressSettings(body_budget=BUDGET, api_keys=("a", "b"))
A, B = ({"authorization": f"Bearer {key}", "content-type": "application/json"} for key in "ab")


class Upload:
    """A body that halts before its end until it may go on."""

    def __init__(self, n_bytes: int) -> None:
        self.body = json.dumps(HELLO).encode().ljust(n_bytes)
        self.halted, self.gate = asyncio.Event(), asyncio.Event()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self.body[:-1]
        self.halted.set()
        await self.gate.wait()
        yield self.body[-1:]


async def post(client: httpx.AsyncClient, headers: dict[str, str], body: Any) -> httpx.Response:
    return await client.post(CHAT, content=body, headers=headers)


@pytest.mark.parametrize("protocol", ["openai", "anthropic", "llama"])
async def test_who_holds_their_share_is_refused_and_others_are_not(protocol: str) -> None:
    paths = {"openai": CHAT, "anthropic": "/v1/messages", "llama": "/chat/completions"}
    large = b"[" + b" " * (BUDGET // 10) + b"]"
    async with http(every(SETTINGS)[protocol]) as client:

        def send(headers: dict[str, str], body: Any) -> asyncio.Task[httpx.Response]:
            sent = client.post(paths[protocol], content=body, headers=headers)
            return asyncio.create_task(sent)

        upload = Upload(LARGEST)
        first = send(A, upload)
        await upload.halted.wait()
        refused = await send(A, large)
        assert refused.status_code == OVERLOADED[protocol]
        assert int(refused.headers["retry-after"]) > 0
        assert (await send(A, b"[]")).status_code == 400  # read: it is small
        assert (await send(B, b"[" + b" " * FREE_BYTES + b"]")).status_code == 400
        upload.gate.set()
        await first
        assert (await send(A, large)).status_code == 400


async def test_a_body_counts_until_its_request_is_answered() -> None:
    gate = asyncio.Event()
    engine = ScriptedEngine(says("Hello there", gate=gate))
    body = b'{"prompt": "x"}'.ljust(LARGEST)
    async with http(app(engine, Metrics(), SETTINGS)) as client:
        first = asyncio.create_task(client.post(COMPLETIONS, content=body, headers=A))
        await engine.starts.get()
        assert (await client.post(COMPLETIONS, content=body, headers=A)).status_code == 429
        gate.set()
        assert (await first).is_success
        assert (await client.post(COMPLETIONS, content=body, headers=A)).is_success


async def test_a_client_that_leaves_holds_nothing() -> None:
    async with http(served(settings=SETTINGS)) as client:
        upload = Upload(LARGEST)
        first = asyncio.create_task(post(client, A, upload))
        await upload.halted.wait()
        first.cancel()
        await asyncio.wait({first})
        assert (await post(client, A, Upload(BUDGET // 10).body)).is_success


async def test_a_command_is_short() -> None:
    async with http(every()["openai"]) as client:
        body = b'{"model": "tiny"}'.ljust((1 << 20) + 1)
        headers = {"content-type": "application/json"}
        response = await client.post("/v1/models/load", content=body, headers=headers)
        assert response.status_code == 413


def test_what_is_reserved_counts_until_the_answer_has_ended() -> None:
    shares = FairShare(BUDGET)
    account, other = (BodyAccount(shares, lambda: "a") for _ in range(2))
    account.grow(FREE_BYTES)
    account.reserve(shares.most)
    assert shares.acquired_by("a") == shares.most
    with pytest.raises(Refused) as refused:
        other.reserve(shares.most)
    assert refused.value.error.kind is ErrorKind.OVERLOADED
    account.close()
    account.reserve(1)  # a store was still reading
    assert shares.n_acquired == 0
    other.reserve(shares.most)


def test_what_no_request_may_reserve_is_refused_before_it_is_acquired() -> None:
    shares = FairShare(BUDGET)
    account = BodyAccount(shares, lambda: "a")
    account.grow(FREE_BYTES)
    with pytest.raises(Refused, match="max_inflight_body_bytes") as refused:
        account.reserve(shares.most + 1)
    assert refused.value.error.kind is ErrorKind.BODY_TOO_LARGE
    assert shares.n_acquired == 0
    account.reserve(shares.most)


def test_what_several_work_on_is_released_when_the_last_one_ends() -> None:
    shares = FairShare(1 << 30)
    account = BodyAccount(shares, lambda: "a")
    account.grow(10 * FREE_BYTES)
    account.share()
    account.close()
    assert shares.n_acquired == 9 * FREE_BYTES
    account.close()
    assert shares.n_acquired == 0
