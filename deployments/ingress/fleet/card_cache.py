"""The cards of models, by name. A card is dropped when its model has another one."""

import asyncio
import logging
import pickle
import time
import uuid
import zlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from deployments.contract.model_card import ModelCard
from deployments.contract.model_status import ModelStatus
from deployments.contract.served_adapters import PLAIN_MODEL, AdapterTable, AskedAdapters
from deployments.ingress.fleet.cluster import UP_STATES
from deployments.ingress.fleet.model_waits import ModelWaits
from deployments.ingress.fleet.retries import Retries
from deployments.ingress.fleet.router_client import (
    CHOICE_TIMEOUT_S,
    RouterClient,
    RouterSilentError,
)
from deployments.ingress.fleet.serve_handles import (
    UNREACHABLE,
    ServeHandles,
    cancelled_elsewhere,
    unavailable,
)
from deployments.serving.detached_tasks import create_shared_task

log = logging.getLogger("ray.serve")

FETCH_TIMEOUT_S = 30.0  # a replica that has just started may be slow to answer
NAME_TTL_S = 5.0  # how long a name stands for the same model with the same card, unasked
MAX_NAMES = 1024
MAX_CARDS = 64  # each holds a tokenizer, of up to tens of megabytes


class CardCache:
    """Belongs to one event loop."""

    def __init__(
        self,
        handles: ServeHandles,
        router: RouterClient,
        waits: ModelWaits,
        patience_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._handles = handles
        self._router = router
        self._waits = waits
        self._patience_s = patience_s
        self._clock = clock
        self._lessee = uuid.uuid4().hex  # asks what a name means
        self._cards: dict[str, ModelCard] = {}
        self._fetching: dict[str, asyncio.Task[ModelCard]] = {}
        # A name, alias or None -> its model, and until when that is known.
        self._names: dict[str | None, tuple[str, float]] = {}
        self._statuses: dict[str, ModelStatus] = {}  # the last one of each model

    async def get(self, model: str | None) -> ModelCard:
        """Waits for a model that is not up. None is the default model. Raises Refused."""
        name = await self._cached_name(model)
        if name is None:
            name = await self._resolve(model)
        # Before the card is waited for: an adapter that goes meanwhile must not become none.
        adapters = self._asked_adapters(name, model)
        card = self._cards.get(name)
        if card is None:
            card = await self._fetch(name)
        return replace(card, adapters=adapters) if adapters.table.adapters else card

    def update(self, statuses: Iterable[ModelStatus]) -> None:
        """Drops the cards that are not those of these statuses, which the router has just sent."""
        for status in statuses:
            self._take_status(status)
            card = self._cards.get(status.name)
            if card is not None and not _is_of(card, status):
                self.forget(status.name)
            elif card is not None:
                self._remember(status.name, status.name)

    def update_adapters(self, model: str, table: AdapterTable) -> None:
        """The router has said which adapters the model has now."""
        if (status := self._statuses.get(model)) is not None:
            self._take_status(replace(status, adapters=table))

    def forget(self, model: str) -> None:
        """The model may return with another card, and names may then mean other models."""
        self._cards.pop(model, None)
        self._names.clear()

    def _take_status(self, status: ModelStatus) -> None:
        known = self._statuses.get(status.name)
        if known is not None and known.adapters != status.adapters:
            self._names.clear()  # they may now mean an adapter, or none
        self._statuses[status.name] = status

    def _asked_adapters(self, name: str, asked: str | None) -> AskedAdapters:
        status = self._statuses.get(name)
        if status is None:
            return PLAIN_MODEL
        names = (status.name, *status.aliases)
        return AskedAdapters(asked=asked, names=names, table=status.adapters)

    async def _cached_name(self, model: str | None) -> str | None:
        """The model's own name, if its card is here and still valid."""
        name, until = self._names.get(model, (model, float("-inf")))
        if name is None or name not in self._cards:
            return None
        if self._clock() < until or not self._router.should_ask():
            return name
        return await self._revalidate(model, name)

    async def _revalidate(self, model: str | None, name: str) -> str | None:
        """Asks the router which model the name means now; None if that is not up. Without a router
        the last answer holds.
        """
        self._remember(model, name)  # requests that come meanwhile need not ask too
        try:
            answer = await self._router.ensure_loaded(
                model, self._lessee, wait_s=0.0, grace_s=CHOICE_TIMEOUT_S
            )
        except RouterSilentError:
            return name
        self._names.pop(model, None)
        if not isinstance(answer, ModelStatus):
            return None
        self.update([answer])
        if answer.state not in UP_STATES:
            return None
        self._remember(model, answer.name)
        return answer.name

    async def _resolve(self, model: str | None) -> str:
        status = await self._waits.wait_until_up(model, self._patience_s)
        self.update([status])
        self._remember(model, status.name)
        return status.name

    def _remember(self, model: str | None, name: str) -> None:
        """Remembers for NAME_TTL_S that both names mean the model whose own name is `name`."""
        for key in {model, name}:
            self._names.pop(key, None)
            self._names[key] = name, self._clock() + NAME_TTL_S
        while len(self._names) > MAX_NAMES:
            del self._names[next(iter(self._names))]

    async def _fetch(self, name: str) -> ModelCard:
        """Fetches a card once, however many requests wait for it."""
        if name not in self._fetching:
            self._fetching[name] = create_shared_task(self._fetch_now(name))
            self._fetching[name].add_done_callback(lambda _: self._fetching.pop(name))
        try:
            async with asyncio.timeout(self._patience_s):
                return await asyncio.shield(self._fetching[name])
        except TimeoutError as error:
            raise unavailable(f"The model {name!r} does not answer; try again soon") from error

    async def _fetch_now(self, name: str) -> ModelCard:
        retries = Retries(self._patience_s)
        while True:
            try:
                async with asyncio.timeout(FETCH_TIMEOUT_S):
                    packed = await self._download(name)
                break
            except UNREACHABLE as error:
                log.warning("no card of %s: %r", name, error)
                await retries.wait_after_loss(progressed=False)
                await self._waits.wait_until_up(name, retries.remaining_s)
        card = self._cards[name] = await asyncio.to_thread(_unpack, packed)
        if len(self._cards) > MAX_CARDS:
            del self._cards[next(iter(self._cards))]
        return card

    async def _download(self, name: str) -> bytes:
        model = await self._handles.model(name)
        with cancelled_elsewhere():
            chunks = model.options(stream=True, method_name="card").remote()
            return b"".join([chunk async for chunk in chunks])


def _is_of(card: ModelCard, status: ModelStatus) -> bool:
    """Whether the model still has this card, as far as the router knows."""
    return status.state in UP_STATES and status.version in ("", card.version)


def _unpack(packed: bytes) -> ModelCard:
    card: ModelCard = pickle.loads(zlib.decompress(packed))
    return card
