"""Handles of Serve deployments: found on first use, and called with short deadlines."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc  # type: ignore[import-untyped]
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException
from ray.serve.handle import DeploymentHandle, DeploymentResponse
from ray.serve.schema import ApplicationStatus, ServeStatus

from deployments.contract.errors import ErrorKind, Refused
from deployments.model.settings import MODEL_DEPLOYMENT, application_name
from deployments.serving.deploy_errors import last_error
from deployments.serving.detached_tasks import create_detached_task

log = logging.getLogger("ray.serve")

CONTROL_TIMEOUT_S = 5.0
STATUS_TIMEOUT_S = 1.0  # for Serve to say why there is no answer: who asked has waited already

UNREACHABLE = (RayError, RayServeException, grpc.aio.AioRpcError, TimeoutError)


class CallCancelledError(RayServeException):  # type: ignore[misc]  # Ray ships no types
    """Ray cancelled the call, and not the task that waits for it."""


class ServeHandles:
    """Belongs to one event loop. A handle outlives its application and serves the next one of that
    name.
    """

    def __init__(
        self,
        find: Callable[[str, str], DeploymentHandle] = serve.get_deployment_handle,
        status: Callable[[], ServeStatus] = serve.status,
    ) -> None:
        self._find = find
        self._status = status
        self._status_task: asyncio.Task[ServeStatus] | None = None
        self._found: dict[tuple[str, str], DeploymentHandle] = {}
        self._unreachable: set[str] = (
            set()
        )  # applications that did not answer to the last broadcast
        self._to_abort: dict[str, list[str]] = {}  # request ids by model, not sent yet
        self._background: set[asyncio.Task[Any]] = set()

    async def get(self, application: str, deployment: str) -> DeploymentHandle:
        """Raises RayServeException when there is no such deployment."""
        key = application, deployment
        if key not in self._found:
            # Applications start in no particular order, and this blocks on Serve's controller.
            self._found[key] = await asyncio.to_thread(self._find_now, application, deployment)
        return self._found[key]

    async def model(self, name: str) -> DeploymentHandle:
        return await self.get(application_name(name), MODEL_DEPLOYMENT)

    async def broadcast(
        self, application: str, deployment: str, method: str, *args: object
    ) -> list[object]:
        """The answers of those replicas of a deployment that gave one in time."""
        began = time.monotonic()
        try:
            async with asyncio.timeout(CONTROL_TIMEOUT_S):
                handle = await self.get(application, deployment)
            left_s = CONTROL_TIMEOUT_S - (time.monotonic() - began)
            answers = await _answers(handle, left_s, method, *args)
        except UNREACHABLE as error:
            if application not in self._unreachable:  # it may not even be meant to be there
                self._unreachable.add(application)
                log.warning("no %s from %s: %r", method, application, error)
            return []
        self._unreachable.discard(application)
        return [answer for answer in answers if not isinstance(answer, BaseException)]

    async def deploy_failure(self, application: str) -> str | None:
        """Why Serve could not deploy the application; None if it could, or does not say in time."""
        if self._status_task is None or self._status_task.done():  # once for all that want it
            self._status_task = create_detached_task(asyncio.to_thread(self._status))
        try:
            async with asyncio.timeout(STATUS_TIMEOUT_S):
                status = await asyncio.shield(self._status_task)
        except UNREACHABLE as error:
            log.warning("Serve does not say what became of %s: %r", application, error)
            return None
        found = status.applications.get(application)
        if found is None or found.status is not ApplicationStatus.DEPLOY_FAILED:
            return None
        messages = [
            deployment.message for deployment in found.deployments.values() if deployment.message
        ]
        return last_error(messages[0] if messages else found.message)

    async def complete(self, model: str, request_id: str) -> None:
        """Ends a request, wherever it runs, of whose answer nothing more is needed."""
        await self.broadcast(application_name(model), MODEL_DEPLOYMENT, "complete", request_id)

    def end_thoughts(self, model: str, response_id: str) -> None:
        """Ends the thinking of a response, in the background, on the replica that has it now."""
        application = application_name(model)
        told = self.broadcast(application, MODEL_DEPLOYMENT, "end_thoughts", response_id)
        self._keep(create_detached_task(told))

    def abort(self, model: str, request_id: str) -> None:
        """Ends a request wherever it runs, in the background: a pin is only a hint."""
        if model not in self._to_abort:
            self._keep(create_detached_task(self._abort(model)))
        self._to_abort.setdefault(model, []).append(request_id)

    async def _abort(self, model: str) -> None:
        request_ids = self._to_abort.pop(model)
        try:
            async with asyncio.timeout(CONTROL_TIMEOUT_S):
                handle = await self.model(model)
            await _answers(handle, CONTROL_TIMEOUT_S, "abort", *request_ids)
        except UNREACHABLE as error:
            log.warning("%s could not be aborted: %r", ", ".join(request_ids), error)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _find_now(self, application: str, deployment: str) -> DeploymentHandle:
        try:
            return self._find(deployment, application)
        except KeyError as error:
            message = f"the application {application} has no deployment {deployment} now"
            raise RayServeException(message) from error


async def _answers(
    handle: DeploymentHandle, timeout_s: float, method: str, *args: object
) -> list[object]:
    """Returns the answers that came in time, also exceptions.

    Ray's own collection gives none where one replica is late.
    """
    with cancelled_elsewhere():
        responses = handle.broadcast(method, *args)
        async with asyncio.timeout(timeout_s):
            results = await responses._fetch_replica_results_async()
        asked = [asyncio.ensure_future(result.get_async()) for result in results]
        if not asked:
            return []
        done, late = await asyncio.wait(asked, timeout=timeout_s)
        for task in late:
            task.cancel()
        return [answer.exception() or answer.result() for answer in asked if answer in done]


async def call_result(response: DeploymentResponse) -> Any:
    """The result of a call, which ends when nobody waits for it any more."""
    try:
        with cancelled_elsewhere():
            return await response
    except asyncio.CancelledError:
        response.cancel()  # else its replica goes on with it
        raise


def unavailable(message: str) -> Refused:
    return Refused.of_kind(ErrorKind.UNAVAILABLE, message)


@contextmanager
def cancelled_elsewhere() -> Iterator[None]:
    """Raises CallCancelledError in the place of a CancelledError that is not for the running task.

    Ray raises one in whoever waits for a call that a stopping replica cancels.
    """
    try:
        yield
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise CallCancelledError("a stopping replica cancelled the call") from None
