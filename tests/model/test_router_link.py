"""Calls to a router that may be missing: none is left behind, and nobody looks for it twice."""

import asyncio
import threading
from collections.abc import Generator

import pytest
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle

from deployments.contract.model_status import LoadProgress
from deployments.model import router_link
from deployments.model.router_link import RouterLink, call_result


class Response:
    """A call by Ray that ends when it is told to."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.is_cancelled = False

    def __await__(self) -> Generator[None, None, bool]:
        return self.answer.__await__()

    def cancel(self) -> None:
        self.is_cancelled = True


def test_a_call_whose_caller_leaves_is_called_off() -> None:
    async def scenario() -> None:
        response = Response()
        call = asyncio.create_task(call_result(response))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait({call})
        assert call.cancelled()
        assert response.is_cancelled

    asyncio.run(scenario())


def test_a_call_that_takes_too_long_is_called_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        response = Response()
        with pytest.raises(TimeoutError):
            await call_result(response)
        assert response.is_cancelled

    monkeypatch.setattr(router_link, "CALL_TIMEOUT_S", 0.0)
    asyncio.run(scenario())


def test_a_call_that_is_answered_is_not() -> None:
    async def scenario() -> None:
        response = Response()
        response.answer.set_result(True)
        assert await call_result(response)
        assert not response.is_cancelled

    asyncio.run(scenario())


def test_while_serve_does_not_answer_one_thread_waits_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, answered = threading.Event(), threading.Event()
    n_begun = 0

    def find() -> DeploymentHandle:
        nonlocal n_begun
        n_begun += 1
        begun.set()
        answered.wait()
        raise RayServeException("there is no router")

    async def scenario() -> None:
        link, progress = RouterLink(), LoadProgress(stage="weights", value=0.5)
        for _ in range(3):  # each gives up
            call = asyncio.create_task(link.progress("model-m", progress))
            await asyncio.to_thread(begun.wait)
            call.cancel()
            await asyncio.wait({call})
        last = asyncio.create_task(link.progress("model-m", progress))
        await asyncio.sleep(0)
        answered.set()
        with pytest.raises(RayServeException):
            await last

    monkeypatch.setattr(router_link, "find_router", find)
    monkeypatch.setattr(router_link, "LOOKUP_RETRY_S", 0.0)
    asyncio.run(scenario())
    assert n_begun == 1
