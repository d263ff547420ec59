"""The whole server as endpoints see it: models, their states, what their replicas say."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.model_card import ModelCard
from deployments.contract.model_status import ModelState, ModelStatus
from deployments.contract.replica_status import FleetStatus
from deployments.contract.served_adapters import SEPARATOR, ServedAdapter, named_adapter
from deployments.contract.slots import SlotAction, SlotReport
from deployments.ingress.generation.engine_client import Engine

UP_STATES = frozenset({ModelState.READY, ModelState.SLEEPING})
CARD_TIMEOUT_S = 5.0  # for a card that one can do without


class Cluster(Engine, Protocol):
    """Implemented by `deployments.ingress.fleet.fleet.Fleet`. All of it raises Refused."""

    async def statuses(self, timeout_s: float = ...) -> list[ModelStatus]:
        """All models, the default one first. Refused while there is no router."""
        ...

    async def changes(self, version: int, wait_s: float) -> tuple[int, list[ModelStatus]]:
        """The statuses once their version is another than this, or after `wait_s`."""
        ...

    async def fleet(self) -> FleetStatus:
        """All models and their replicas, as the router knows them."""
        ...

    async def load(self, model: str) -> None: ...

    async def unload(self, model: str) -> None: ...

    async def reload(self) -> None:
        """Reads again where the models come from."""
        ...

    async def download(self, model: str, revision: str | None) -> None:
        """Starts the download of a model of the hub."""
        ...

    async def delete(self, model: str) -> None:
        """Deletes a downloaded model, or ends its download."""
        ...

    async def load_adapter(self, name: str, path: str, model: str | None, replaces: bool) -> None:
        """Has requests choose an adapter of the operator's folder; `model` is the only one for
        None. `replaces`: another one that was loaded under this name.
        """
        ...

    async def unload_adapter(self, name: str) -> None:
        """New requests no longer have it. Those that run keep it."""
        ...

    async def scale_adapters(self, model: str, scales: Sequence[tuple[int, float]]) -> None:
        """Sets the default scales of a model's adapters, by their ids; all others are 0."""
        ...

    async def act_on_slot(
        self, model: str, action: SlotAction, replica_id: str | None, session: str
    ) -> SlotReport:
        """Acts on a slot of a replica; None: the one that requests of this session would get."""
        ...

    async def is_serving(self) -> bool:
        """Whether some model answers, asked directly."""
        ...

    async def broadcast(
        self, application: str, deployment: str, method: str, *args: object
    ) -> list[object]:
        """The answers of those replicas that gave one in time."""
        ...


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model, or an adapter of it, that a request may name."""

    status: ModelStatus
    adapter: ServedAdapter | None = None

    @property
    def id(self) -> str:
        return self.status.name if self.adapter is None else self.adapter.name

    @property
    def aliases(self) -> tuple[str, ...]:
        if self.adapter is None:
            return self.status.aliases
        return (f"{self.status.name}{SEPARATOR}{self.adapter.name}",)


def served_models(statuses: Iterable[ModelStatus]) -> list[ServedModel]:
    """Each model, followed by its adapters."""
    return [
        ServedModel(status, adapter)
        for status in statuses
        for adapter in (None, *status.adapters.adapters)
    ]


def find_model(statuses: Sequence[ModelStatus], name: str | None) -> ModelStatus:
    """Returns the model of this name or alias, or with this adapter; the default one for None.

    Raises Refused.
    """
    return find_served(statuses, name).status


def find_served(statuses: Sequence[ModelStatus], name: str | None) -> ServedModel:
    """The same, with the adapter that is named."""
    for status in statuses:
        if name is None or name == status.name or name in status.aliases:
            return ServedModel(status)
    for status in statuses:
        names = (status.name, *status.aliases)
        if adapter := named_adapter(name, names, status.adapters.adapters):
            return ServedModel(status, adapter)
    for status in statuses:
        if status.has_any_name:
            return ServedModel(status)
    message = f"The model {name!r} does not exist" if name else "No model is configured"
    raise Refused.of_kind(ErrorKind.MODEL_NOT_FOUND, message, "model")


async def inspect_model(cluster: Cluster, name: str | None) -> tuple[ModelStatus, ModelCard]:
    """Returns a model and its card. It neither has the model loaded nor waits for it.

    Raises Refused.
    """
    status = find_model(await cluster.statuses(), name)
    card = await card_if_up(cluster, status)
    if card is None:
        lacks = "has no replica that answers" if status.state in UP_STATES else "is not loaded"
        message = f"The model {status.name!r} {lacks}"
        raise Refused.of_kind(ErrorKind.UNAVAILABLE, message, "model")
    return status, card


async def cards_of(
    cluster: Cluster, models: Iterable[ServedModel]
) -> Mapping[str, ModelCard | None]:
    """Maps the names of the models to what `card_if_up` returns for them.

    Adapters have the card of their model.
    """
    statuses = {model.status.name: model.status for model in models}
    cards = await asyncio.gather(*(card_if_up(cluster, status) for status in statuses.values()))
    return dict(zip(statuses, cards, strict=True))


async def card_if_up(cluster: Cluster, status: ModelStatus) -> ModelCard | None:
    """None for a model that is to be loaded first, or scaled up from no replica at all."""
    if status.state in UP_STATES and status.replicas:
        with suppress(Refused, TimeoutError):  # it has gone since it was listed, or hangs
            async with asyncio.timeout(CARD_TIMEOUT_S):
                return await cluster.card(status.name)
    return None
