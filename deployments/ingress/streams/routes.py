"""Routes to resumable streams: read one from an offset, look some up, stop one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deployments.contract.errors import refused
from deployments.ingress.http.body import parse_json, read_command
from deployments.ingress.http.clients import connection_of, owner_of
from deployments.ingress.http.openapi import EVENTS, DocumentedRoute
from deployments.ingress.http.schema import Strict
from deployments.ingress.http.validation import parse
from deployments.ingress.settings import IngressSettings
from deployments.ingress.streams.followed_stream import FollowedStream
from deployments.ingress.streams.peers import StreamKey, StreamState
from deployments.ingress.streams.resumable_streams import ResumableStreams, stream_key

TAG = "Resumable streams"
MAX_OFFSET_DIGITS = 18


class StreamLookup(Strict):
    conversation_ids: Annotated[list[str], Field(max_length=1024)]


@dataclass(frozen=True, slots=True)
class StreamEndpoints:
    streams: ResumableStreams
    settings: IngressSettings

    async def follow(self, request: Request) -> FollowedStream:
        offset = _offset(request)
        return FollowedStream(self.streams, _key(request), self._client(request), offset)

    async def stop(self, request: Request) -> Response:
        key = _key(request)
        if self.streams.find(key) is not None:  # no older one is left elsewhere
            self.streams.stop(key)
            return Response(status_code=204)
        with self.streams.admitted(self._client(request)):
            await self.streams.stop_elsewhere(key)
        return Response(status_code=204)

    async def look_up(self, request: Request) -> Response:
        settings = self.settings
        body = await read_command(request, settings)
        names = parse(StreamLookup, parse_json(body)).conversation_ids
        owner = owner_of(request)
        for name in names:
            stream_key(owner, name, "conversation_ids")
        with self.streams.admitted(self._client(request)):
            found = await self.streams.find_all(owner, names)
        return JSONResponse([_described(state) for state in found])

    def _client(self, request: Request) -> str:
        return connection_of(request, sees_peers=self.settings.sees_peers)


def stream_routes(
    streams: ResumableStreams, settings: IngressSettings, prefix: str = "/v1"
) -> list[Route]:
    endpoints = StreamEndpoints(streams, settings)
    one, lookup = f"{prefix}/stream", f"{prefix}/streams/lookup"
    follow, stop, look_up = endpoints.follow, endpoints.stop, endpoints.look_up
    return [
        _route(one, follow, "GET", "follow_stream", media_types=(EVENTS,), query=("from",)),
        _route(one, stop, "DELETE", "stop_stream", media_types=()),
        _route(lookup, look_up, "POST", "look_up_streams", body=StreamLookup),
    ]


def _route(
    path: str,
    endpoint: Callable[..., object],
    method: str,
    name: str,
    body: type[BaseModel] | None = None,
    media_types: tuple[str, ...] = ("application/json",),
    query: tuple[str, ...] = (),
) -> Route:
    needed = () if body else ("conv_id",)
    return DocumentedRoute(
        path,
        endpoint,
        methods=[method],
        name=name,
        tag=TAG,
        body=body,
        media_types=media_types,
        query=query,
        needed=needed,
    )


def _key(request: Request) -> StreamKey:
    name = request.query_params.get("conv_id", "")
    if not name:
        raise refused("`conv_id` is missing", "conv_id")
    return stream_key(owner_of(request), name, "conv_id")


def _offset(request: Request) -> int:
    given = request.query_params.get("from", "0")
    if not (given.isascii() and given.isdecimal() and len(given) <= MAX_OFFSET_DIGITS):
        raise refused("`from` must be a number of bytes", "from")
    return int(given)


def _described(state: StreamState) -> object:
    return {
        "conversation_id": state.name,
        "is_done": state.completed_at > 0,
        "total_bytes": state.total,
        "started_at": int(state.began),
        "completed_at": state.completed_at,
    }
