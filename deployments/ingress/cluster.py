"""The whole server as endpoints see it: models, their states, what their replicas say."""

from typing import Protocol

from deployments.ingress.handler import Engine
from deployments.wire import ErrorKind, ModelState, ModelStatus, Refused, RequestError

UP = frozenset({ModelState.READY, ModelState.SLEEPING})


class Cluster(Engine, Protocol):
    """Implemented by `deployments.ingress.fleet.Fleet`. All of it raises Refused."""

    async def statuses(self, timeout_s: float = ...) -> list[ModelStatus]:
        """All models, the default one first. Refused while there is no router."""
        ...

    async def changes(self, version: int, wait_s: float) -> tuple[int, list[ModelStatus]]:
        """The statuses once their version is another than this, or after `wait_s`."""
        ...

    async def load(self, model: str) -> None: ...

    async def unload(self, model: str) -> None: ...

    async def reload(self) -> None:
        """Reads again where the models come from."""
        ...

    async def is_serving(self) -> bool:
        """Whether some model answers, asked directly."""
        ...

    async def broadcast(self, application: str, deployment: str, method: str) -> list[object]:
        """The answers of those replicas that gave one in time."""
        ...


def find(statuses: list[ModelStatus], name: str | None) -> ModelStatus:
    """By name or alias; the default one for None. Raises Refused."""
    for status in statuses:
        if name is None or name == status.name or name in status.aliases:
            return status
    message = f"The model {name!r} does not exist" if name else "No model is configured"
    raise Refused(RequestError(ErrorKind.MODEL_NOT_FOUND, message, "model"))


async def find_up(cluster: Cluster, name: str | None) -> ModelStatus:
    """As `find`, for who wants to look at a model and not to have it loaded."""
    status = find(await cluster.statuses(), name)
    if status.state not in UP:
        message = f"The model {status.name!r} is not loaded"
        raise Refused(RequestError(ErrorKind.UNAVAILABLE, message, "model"))
    return status
