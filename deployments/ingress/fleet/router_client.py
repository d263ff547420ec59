"""Calls to the router. Each has a deadline, and a router that does not answer costs little."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from deployments.contract.channel import count_fitting
from deployments.contract.errors import Refused, RequestError
from deployments.contract.model_card import ModelCard
from deployments.contract.model_status import ModelStatus
from deployments.contract.replica_status import FleetStatus
from deployments.contract.routing import RoutingDecision, RoutingQuery
from deployments.ingress.fleet.serve_handles import (
    CONTROL_TIMEOUT_S,
    UNREACHABLE,
    ServeHandles,
    call_result,
    unavailable,
)
from deployments.serving.detached_tasks import create_detached_task, create_shared_task
from deployments.telemetry.spans import is_traced

log = logging.getLogger("ray.serve")

CHOICE_TIMEOUT_S = 0.5
COMMAND_TIMEOUT_S = 30.0  # reading a folder of models again may take a while
ROUTER_RETRY_S = 1.0  # until a router that did not answer is asked again
ROUTER_APPLICATION = "router"  # its application
ANY_REPLICA = RoutingDecision(None, True)


class RouterSilentError(Exception):
    """The router gave no answer in time."""


class RouterClient:
    """Belongs to one event loop."""

    def __init__(self, handles: ServeHandles, clock: Callable[[], float] = time.monotonic) -> None:
        self._handles = handles
        self._clock = clock
        self._is_silent = False
        self._retry_at = 0.0
        self.last_statuses: list[ModelStatus] = []  # the last ones that the router sent
        self._statuses_at = float("-inf")
        self._status_task: asyncio.Task[list[ModelStatus]] | None = None
        self._queries: list[
            tuple[RoutingQuery, asyncio.Future[RoutingDecision]]
        ] = []  # not sent yet
        self._choosing: asyncio.Task[None] | None = None

    async def choose(
        self, card: ModelCard, hashes: tuple[bytes, ...], request_id: str, session: str
    ) -> RoutingDecision:
        """A replica for a request. Without an answer in CHOICE_TIMEOUT_S any replica will do."""
        if not self.should_ask():
            return ANY_REPLICA
        adapters = card.adapters.table.version
        query = RoutingQuery(card.name, hashes, request_id, session, card.version, adapters)
        if is_traced():  # a call of its own, which shows among its spans
            [advice] = await self._choose_now([query])
            return advice
        try:
            async with asyncio.timeout(CHOICE_TIMEOUT_S):
                return await self._enqueue(query)
        except TimeoutError:
            return ANY_REPLICA

    async def ensure_loaded(
        self,
        model: str | None,
        lessee: str,
        wait_s: float,
        unloads: int | None = None,
        grace_s: float = CONTROL_TIMEOUT_S,
    ) -> ModelStatus | RequestError:
        """Raises RouterSilentError."""
        answer: ModelStatus | RequestError = await self._call(
            wait_s + grace_s, "ensure_loaded", model, lessee, wait_s, unloads
        )
        return answer

    async def statuses(self, timeout_s: float = CONTROL_TIMEOUT_S) -> list[ModelStatus]:
        """All models, the default one first. Raises Refused."""
        self.last_statuses = await self._call_or_refuse(timeout_s, "models")
        self._statuses_at = self._clock()
        return self.last_statuses

    async def status(self, model: str, max_age_s: float) -> ModelStatus | None:
        """The last known one if it is not older, or a new one for all callers. Raises Refused."""
        if self._clock() - self._statuses_at >= max_age_s:
            if self._status_task is None or self._status_task.done():
                self._status_task = create_shared_task(self.statuses())
            await asyncio.shield(self._status_task)
        return next((status for status in self.last_statuses if status.name == model), None)

    async def changes(self, version: int, wait_s: float) -> tuple[int, list[ModelStatus]]:
        """Raises Refused."""
        changed: tuple[int, list[ModelStatus]] = await self._call_or_refuse(
            wait_s + CONTROL_TIMEOUT_S, "changes", version, wait_s
        )
        return changed

    async def fleet(self) -> FleetStatus:
        """Raises Refused."""
        fleet: FleetStatus = await self._call_or_refuse(CONTROL_TIMEOUT_S, "fleet")
        return fleet

    async def command(self, verb: str, *args: object) -> None:
        """Raises Refused, also for what the router would not do."""
        refusal: RequestError | None = await self._call_or_refuse(COMMAND_TIMEOUT_S, verb, *args)
        if refusal is not None:
            raise Refused(refusal)

    async def deploy_failure(self) -> Refused | None:
        """The refusal when Serve could not start the router: waiting for it is no use."""
        failure = await self._handles.deploy_failure(ROUTER_APPLICATION)
        return unavailable(f"The router could not be started: {failure}") if failure else None

    async def no_answer_refusal(self) -> Refused:
        """The refusal when the router does not answer."""
        no_answer = unavailable("The router does not answer; try again soon")
        return await self.deploy_failure() or no_answer

    def should_ask(self) -> bool:
        """Whether to ask the router: while it does not answer, one request a second does."""
        if not self._is_silent:
            return True
        if self._clock() < self._retry_at:
            return False
        self._retry_at = self._clock() + ROUTER_RETRY_S
        return True

    def _enqueue(self, query: RoutingQuery) -> asyncio.Future[RoutingDecision]:
        """Sent at once, or with all others that came during the last call."""
        advice = asyncio.get_running_loop().create_future()
        self._queries.append((query, advice))
        if self._choosing is None:
            self._choosing = create_detached_task(self._choose_all())
        return advice

    async def _choose_all(self) -> None:
        try:
            while self._queries:
                n = count_fitting(1 + len(query.hashes) for query, _ in self._queries)
                asked, self._queries = self._queries[:n], self._queries[n:]
                choices = await self._choose_now([query for query, _ in asked])
                if self._is_silent:  # those that came meanwhile get no answer either
                    asked, self._queries = asked + self._queries, []
                    choices = [ANY_REPLICA] * len(asked)
                _resolve(asked, choices)
        finally:
            self._choosing = None

    async def _choose_now(self, queries: list[RoutingQuery]) -> list[RoutingDecision]:
        try:
            choices: list[RoutingDecision] = await self._call(CHOICE_TIMEOUT_S, "choose", queries)
        except RouterSilentError:
            return [ANY_REPLICA] * len(queries)
        except Exception:  # whatever ails the router, the requests can do without it
            log.exception("the router failed to choose")
            return [ANY_REPLICA] * len(queries)
        return choices

    async def _call_or_refuse(self, timeout_s: float, method: str, *args: object) -> Any:
        try:
            return await self._call(timeout_s, method, *args)
        except RouterSilentError as error:
            raise await self.no_answer_refusal() from error

    async def _call(self, timeout_s: float, method: str, *args: object) -> Any:
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._call_router(method, *args)
        except UNREACHABLE as error:
            log.warning("the router does not answer to %s: %r", method, error)
            self._is_silent, self._retry_at = True, self._clock() + ROUTER_RETRY_S
            raise RouterSilentError from error
        self._is_silent = False
        return answer

    async def _call_router(self, method: str, *args: object) -> Any:
        router = await self._handles.get(ROUTER_APPLICATION, "Router")
        return await call_result(getattr(router, method).remote(*args))


def _resolve(
    asked: Iterable[tuple[RoutingQuery, asyncio.Future[RoutingDecision]]],
    choices: list[RoutingDecision],
) -> None:
    for (_, advice), choice in zip(asked, choices, strict=True):
        if not advice.done():  # it is when nobody waits for it any more
            advice.set_result(choice)
