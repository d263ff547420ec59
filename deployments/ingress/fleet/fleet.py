"""The engine as an ingress sees it: all models and replicas behind Ray, one stream a request.

A request belongs to the ingress. It keeps the tokens that were produced, and continues from there
on another replica when one dies. It never waits long for the router: without it any replica will
do.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.events import THINKING_OVER, TokenEvent
from deployments.contract.model_card import ModelCard
from deployments.contract.model_status import ModelStatus
from deployments.contract.replica_status import FleetStatus
from deployments.contract.requests import GenerationRequest
from deployments.contract.routing import RoutingDecision
from deployments.contract.slots import SlotAction, SlotReport
from deployments.ingress.fleet.attempt import (
    Attempts,
    ModelGoneError,
    ReplicaDiedError,
    ReplicaLostError,
)
from deployments.ingress.fleet.card_cache import CardCache
from deployments.ingress.fleet.cluster import UP_STATES
from deployments.ingress.fleet.model_waits import ModelWaits
from deployments.ingress.fleet.partial_output import PartialOutput
from deployments.ingress.fleet.prompt_hashes import PromptHashes
from deployments.ingress.fleet.retries import Retries
from deployments.ingress.fleet.router_client import RouterClient
from deployments.ingress.fleet.serve_handles import CONTROL_TIMEOUT_S, ServeHandles
from deployments.ingress.fleet.slot_calls import SlotCalls
from deployments.ingress.fleet.suspects import Suspects
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.model.settings import MODEL_DEPLOYMENT

log = logging.getLogger("ray.serve")


class Fleet:
    """Implements `deployments.ingress.fleet.cluster.Cluster`. Belongs to one event loop."""

    def __init__(
        self,
        settings: IngressSettings = DEFAULTS,
        metrics: Metrics | None = None,
        handles: ServeHandles | None = None,
    ) -> None:
        self._metrics = metrics or Metrics()
        self._patience_s = settings.patience_s
        self._handles = handles or ServeHandles()
        self._router = RouterClient(self._handles)
        self._waits = ModelWaits(self._router, self._metrics)
        self._cards = CardCache(self._handles, self._router, self._waits, self._patience_s)
        self._attempts = Attempts(self._handles, self._router)
        self._slots = SlotCalls(self._handles, self._router)
        self._hashes = PromptHashes()
        self._suspects = Suspects()
        self._running: dict[PartialOutput, str] = {}  # with the names of their models

    async def card(self, model: str | None) -> ModelCard:
        """Waits for a model that has to be loaded. Wakes none that sleeps. Raises Refused."""
        return await self._cards.get(model)

    async def statuses(self, timeout_s: float = CONTROL_TIMEOUT_S) -> list[ModelStatus]:
        statuses = await self._router.statuses(timeout_s)
        self._cards.update(statuses)
        return statuses

    async def changes(self, version: int, wait_s: float) -> tuple[int, list[ModelStatus]]:
        return await self._router.changes(version, wait_s)

    async def fleet(self) -> FleetStatus:
        return await self._router.fleet()

    async def load(self, model: str) -> None:
        await self._router.command("load", model)

    async def unload(self, model: str) -> None:
        await self._router.command("unload", model)

    async def reload(self) -> None:
        await self._router.command("reload")

    async def download(self, model: str, revision: str | None) -> None:
        await self._router.command("download", model, revision)

    async def delete(self, model: str) -> None:
        await self._router.command("delete", model)

    async def load_adapter(self, name: str, path: str, model: str | None, replaces: bool) -> None:
        await self._router.command("load_adapter", name, path, model, replaces)

    async def unload_adapter(self, name: str) -> None:
        await self._router.command("unload_adapter", name)

    async def scale_adapters(self, model: str, scales: Sequence[tuple[int, float]]) -> None:
        await self._router.command("scale_adapters", model, scales)

    async def act_on_slot(
        self, model: str, action: SlotAction, replica_id: str | None, session: str
    ) -> SlotReport:
        return await self._slots.act(await self.card(model), action, replica_id, session)

    async def is_serving(self) -> bool:
        """Whether some model answers. Asks the replicas: a router may be missing for a while."""
        up = [
            status.application for status in self._router.last_statuses if status.state in UP_STATES
        ]
        asked = (self.broadcast(application, MODEL_DEPLOYMENT, "busy") for application in up)
        return any(await asyncio.gather(*asked))

    async def broadcast(
        self, application: str, deployment: str, method: str, *args: object
    ) -> list[object]:
        return await self._handles.broadcast(application, deployment, method, *args)

    async def generate(
        self,
        card: ModelCard,
        request: GenerationRequest,
        is_complete: Callable[[], bool] = lambda: False,
    ) -> AsyncGenerator[TokenEvent, None]:
        """Events of one sequence, from one replica after the other if some die. Raises Refused."""
        output = PartialOutput(request)
        with self._as_running(output, card.name), self._suspects.trace(output, card.name) as trace:
            retries = Retries(self._patience_s)
            hashes = await self._hashes.page_hashes(request, card.page_size)
            lost: set[str | None] = set()
            unloads: int | None = None  # before it began
            has_chosen = False
            while True:
                part = output.remaining_request()
                choice = await self._router.choose(card, hashes, part.request_id, part.session)
                unloads = choice.unloads if unloads is None else unloads
                if not has_chosen:
                    self._check_adapters(card, request, choice)
                has_chosen = True
                if not choice.is_up:
                    await self._wait_until_up(card, retries, unloads)
                pin = None if choice.replica_id in lost else choice.replica_id
                if pin is not None and choice.holder is not None:
                    part = replace(part, prefix_holder=choice.holder)
                trace.begin(pin)
                attempt = self._attempts.events(card, pin, part, retries, is_complete)
                try:
                    async with aclosing(attempt) as events:
                        async for event in events:
                            known = output.add(event)
                            trace.progress()
                            if output.take_untold_order():
                                self._handles.end_thoughts(card.name, request.response_id)
                            if event != THINKING_OVER:
                                yield known
                            if event.finish_reason is not None:
                                return
                except (ReplicaLostError, Refused) as failure:
                    if isinstance(failure, Refused) and not self._should_retry(
                        failure, card, choice, lost
                    ):
                        raise
                    lost.add(pin)
                    if isinstance(failure, ReplicaDiedError):
                        await self._suspects.died(trace, had_it=failure.had_it)
                    await self._wait_for_retry(card, output, retries, failure)
                    if isinstance(failure, ModelGoneError):
                        await self._wait_until_up(card, retries, unloads)

    def end_thoughts(self, response_id: str, models: Collection[str]) -> bool:
        """Notes that the thinking of a response of one of these models is to end, on whatever
        replica goes on with it. Whether it runs here.
        """
        noted = [
            output.end_thinking()
            for output, model in self._running.items()
            if output.response_id == response_id and model in models
        ]
        return any(noted)

    @contextmanager
    def _as_running(self, output: PartialOutput, model: str) -> Iterator[None]:
        self._running[output] = model
        try:
            yield
        finally:
            del self._running[output]

    def _check_adapters(
        self, card: ModelCard, request: GenerationRequest, choice: RoutingDecision
    ) -> None:
        """Raises Refused for a request whose adapters were unloaded, or replaced, before it began.
        It is prepared again then. One that has begun keeps those it has.
        """
        if choice.adapters is None:
            return
        self._cards.update_adapters(card.name, choice.adapters)
        if not card.adapters.means_the_same(choice.adapters, request.content.adapters):
            message = f"The adapters of the model {card.name!r} have changed; try again"
            raise Refused.of_kind(ErrorKind.MODEL_REPLACED, message)

    def _should_retry(
        self, refusal: Refused, card: ModelCard, choice: RoutingDecision, lost: set[str | None]
    ) -> bool:
        """Whether another replica may serve what this one refused.

        A request that lost its replica is not refused as overload: it waits. Where the router knows
        replicas with the card that made the ids, these are asked, even one that was lost before.
        Otherwise the card is forgotten.
        """
        if refusal.error.kind is not ErrorKind.MODEL_REPLACED:
            return bool(lost) and refusal.error.kind is ErrorKind.OVERLOADED
        if choice.version == card.version:
            lost.discard(choice.replica_id)
            return True
        self._cards.forget(card.name)
        return False

    async def _wait_until_up(self, card: ModelCard, retries: Retries, unloads: int | None) -> None:
        """Waits until the model is up. Raises Refused, also when the name is now an alias of
        another model, or an operator has unloaded it. A model that comes back with another card
        refuses ids of the old one itself.
        """
        self._cards.forget(card.name)
        status = await self._waits.wait_until_up(card.name, retries.remaining_s, unloads)
        if status.name != card.name:
            message = f"The model {card.name!r} was replaced by {status.name!r}; try again"
            raise Refused.of_kind(ErrorKind.MODEL_REPLACED, message)
        retries.replica_found()

    async def _wait_for_retry(
        self,
        card: ModelCard,
        output: PartialOutput,
        retries: Retries,
        failure: ReplicaLostError | Refused,
    ) -> None:
        """Returns when the next attempt is due. Raises Refused."""
        log.warning("request %s goes on elsewhere: %r", output.request_id, failure)
        await retries.wait_after_loss(progressed=output.has_progressed)
        self._metrics.failed_over(card.name, mid_stream=output.has_begun)
