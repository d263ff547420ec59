"""The parts of a request that the endpoints read: ids, conditions and bodies."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

from starlette.requests import Request

from deployments.contract.errors import ErrorKind, Refused, refused
from deployments.ingress.http.body import parse_json, read_body
from deployments.ingress.http.clients import connection_of
from deployments.ingress.http.schema import PATTERNS, UUID
from deployments.ingress.http.validation import parse
from deployments.ingress.off_loop import BodyWork, OffLoop
from deployments.ingress.settings import IngressSettings
from deployments.store.chats import ONLY_NEW

MAX_WAIT_S = 30
REVISION = re.compile(r'"([1-9]\d{0,17})"', re.ASCII)

BodyT = TypeVar("BodyT")
ValueT = TypeVar("ValueT")


def id_in(request: Request, name: str) -> str:
    """An id of the path. Raises Refused."""
    found: str = request.path_params[name]
    if not re.fullmatch(UUID, found):
        raise refused(f"`{name}` must be {PATTERNS[UUID]}", name)
    return found


def made_from(request: Request) -> int:
    """The revision that a write was made from. Raises Refused."""
    match, none_match = (request.headers.get(name) for name in ("if-match", "if-none-match"))
    if match is None and none_match is None:
        message = 'A chat is written with `If-Match: "REVISION"`, a new one with `If-None-Match: *`'
        raise Refused.of_kind(ErrorKind.CONDITION_NEEDED, message, "if-match")
    if match is None:
        if none_match != "*":
            raise refused("`If-None-Match` must be *", "if-none-match")
        return ONLY_NEW
    revision = REVISION.fullmatch(match)
    if revision is None or none_match is not None:
        message = "`If-Match` must be one revision in quotes, without `If-None-Match` beside it"
        raise refused(message, "if-match")
    return int(revision[1])


def wait_s(request: Request) -> int:
    text = request.query_params.get("wait", "0")
    if not re.fullmatch("[0-9]{1,2}", text) or int(text) > MAX_WAIT_S:
        raise refused(f"`wait` must be a number of seconds from 0 to {MAX_WAIT_S}", "wait")
    return int(text)


class Bodies:
    """Reads bodies; the work on large ones is not the event loop's."""

    def __init__(self, settings: IngressSettings) -> None:
        self._settings = settings
        self._off_loop = OffLoop()

    async def read(
        self, request: Request, schema: type[Any], form: Callable[[Any], ValueT]
    ) -> ValueT:
        """Returns what `form` makes of the body. Raises Refused."""
        body = await read_body(request, self._settings)
        client = connection_of(request, sees_peers=self._settings.sees_peers)
        work = BodyWork(self._off_loop, len(body), client)
        return await work.run(lambda: form(parse(schema, parse_json(body))))
