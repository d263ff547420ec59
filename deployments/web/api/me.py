"""The endpoint `me`: who asks, and what this server keeps of them."""

from collections.abc import Mapping
from dataclasses import asdict

from pydantic import JsonValue
from starlette.requests import Request
from starlette.responses import Response

from deployments.contract.errors import ErrorKind, Refused
from deployments.ingress.http.clients import owner_name, owner_of
from deployments.ingress.settings import IngressSettings
from deployments.serving.detached_tasks import to_its_end
from deployments.store.limits import StoreLimits
from deployments.store.store import Store
from deployments.web.api.guard import Endpoint
from deployments.web.api.json_answer import json_answer
from deployments.web.api.opening import StoreOpener


def me_endpoint(
    opener: StoreOpener | None, settings: IngressSettings, defaults: Mapping[str, JsonValue]
) -> Endpoint:
    """`opener`: None where nothing is stored."""

    async def me(request: Request) -> Response:
        store = opener.store if opener is not None and opener.is_open else None
        answer: dict[str, object] = {
            "owner": owner_name(request) or owner_of(request),
            "store": "none" if store is None else "server",
            "shared": not settings.api_keys,
            "defaults": dict(defaults),
        }
        if store is not None:
            answer["limits"] = _limits(store.limits, settings)
            answer |= await _used(store, owner_of(request))
        return json_answer(answer)

    return me


async def _used(store: Store, owner: str) -> Mapping[str, int | None]:
    """Nulls while the database can't be reached: browsers have to know the owner even then, since
    they have chats of their own.
    """
    try:
        state = await to_its_end(store.owners.state(owner))
    except Refused as refused:
        if refused.error.kind is not ErrorKind.UNAVAILABLE:
            raise
        return {"revision": None, "used_bytes": None}
    return {"revision": state.revision, "used_bytes": state.n_bytes}


def _limits(limits: StoreLimits, settings: IngressSettings) -> Mapping[str, int]:
    return {**asdict(limits), "max_body_bytes": settings.body_limit}
