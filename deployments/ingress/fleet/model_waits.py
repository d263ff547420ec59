"""Requests that wait for a model to come up: all that wait for one model share one poll.

Each poll renews a lease at the router. When nobody waits the lease ends; a load that has begun goes
on without it.
"""

import asyncio
import time
import uuid
from dataclasses import dataclass, field

from deployments.contract.errors import Refused, RequestError
from deployments.contract.model_status import ModelState, ModelStatus
from deployments.ingress.fleet.cluster import UP_STATES
from deployments.ingress.fleet.router_client import RouterClient, RouterSilentError
from deployments.ingress.fleet.serve_handles import unavailable
from deployments.ingress.metrics import Metrics
from deployments.serving.detached_tasks import create_detached_task

POLL_TIMEOUT_S = 2.0  # how long the router holds one call
POLL_INTERVAL_S = 0.2  # between two calls that were answered at once
ROUTER_PATIENCE_S = 10.0  # for a router that does not answer: a new one takes a second or two
WaitKey = tuple[str | None, int | None]  # a model, and how often operators may have unloaded it


@dataclass(slots=True, eq=False)
class _ModelWait:
    """A wait for one model, which all requests that wait for it share.

    Its lease at the router is that of `lessee`. A later wait has another one: it may begin before
    the router knows that this one has ended.
    """

    lessee: str = field(default_factory=lambda: uuid.uuid4().hex)
    polling: asyncio.Task[ModelStatus] | None = None
    waiters: int = 0
    status: ModelStatus | None = None  # the last one from the router


@dataclass(slots=True, eq=False)
class ModelWaits:
    """Belongs to one event loop."""

    router: RouterClient
    metrics: Metrics
    pause_s: float = POLL_INTERVAL_S
    patience_s: float = ROUTER_PATIENCE_S
    _waits: dict[WaitKey, _ModelWait] = field(default_factory=dict)

    async def wait_until_up(
        self, model: str | None, timeout_s: float, unloads: int | None = None
    ) -> ModelStatus:
        """The status of a model that is READY or SLEEPING. None is the default model.

        Raises Refused, also when operators have unloaded it more often than `unloads` times.
        """
        key = model, unloads
        wait = self._join(key)
        began = time.monotonic()
        try:
            assert wait.polling is not None
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(wait.polling)
        except TimeoutError as error:
            raise unavailable(_describe_wait(model, wait.status)) from error
        finally:
            self._leave(key, wait)
            self._count(wait, time.monotonic() - began)

    def _join(self, key: WaitKey) -> _ModelWait:
        wait = self._waits.get(key)
        if wait is None:
            wait = self._waits[key] = _ModelWait()
            wait.polling = create_detached_task(self._poll_until_up(*key, wait))
        wait.waiters += 1
        return wait

    def _leave(self, key: WaitKey, wait: _ModelWait) -> None:
        wait.waiters -= 1
        if wait.polling is None or (wait.waiters and not wait.polling.done()):
            return
        wait.polling.cancel()
        wait.polling = None  # frames of its failure hold the wait: they would be in a cycle
        if self._waits.get(key) is wait:
            del self._waits[key]

    async def _poll_until_up(
        self, model: str | None, unloads: int | None, wait: _ModelWait
    ) -> ModelStatus:
        answered_at = time.monotonic()
        while True:
            try:
                answer = await self.router.ensure_loaded(
                    model, wait.lessee, POLL_TIMEOUT_S, unloads
                )
            except RouterSilentError as error:
                if failure := await self.router.deploy_failure():
                    raise failure from error
                if time.monotonic() - answered_at > self.patience_s:
                    raise await self.router.no_answer_refusal() from error
            else:
                answered_at = time.monotonic()
                if (status := _if_up(answer)) is not None:
                    return status
                assert isinstance(answer, ModelStatus)
                wait.status = answer
                # Counted from the first answer: an unload between two calls counts too.
                unloads = answer.unloads if unloads is None else unloads
            await asyncio.sleep(self.pause_s)

    def _count(self, wait: _ModelWait, seconds: float) -> None:
        """A request that found the model up has not waited."""
        if wait.status is not None:
            self.metrics.waited(wait.status.name, seconds)


def _if_up(answer: ModelStatus | RequestError) -> ModelStatus | None:
    """Raises Refused when there is nothing to wait for."""
    if isinstance(answer, RequestError):
        raise Refused(answer)
    if answer.state is ModelState.FAILED:
        reason = f": {answer.message}" if answer.message else ""
        raise unavailable(f"The model {answer.name!r} could not be loaded{reason}")
    return answer if answer.state in UP_STATES else None


def _describe_wait(model: str | None, status: ModelStatus | None) -> str:
    """Why the model is not up yet."""
    if status is None:
        of = f" about the model {model!r}" if model else ""
        return f"The router has not answered{of}; try again soon"
    doing = "still loading" if status.state is ModelState.LOADING else f"still {status.state}"
    details = [status.message] if status.message else []
    if status.progress is not None:
        details.append(f"{status.progress.stage} {status.progress.value:.0%}")
    suffix = f" ({', '.join(details)})" if details else ""
    return f"The model {status.name!r} is {doing}{suffix}; try again soon"
