"""A response with the bytes of a kept stream, whichever replica keeps it."""

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.types import Receive, Scope, Send

from deployments.ingress.generation.answer import EVENT_HEADERS, run_while_connected
from deployments.ingress.streams.peers import HolderLostError, Item, StreamKey, no_stream
from deployments.ingress.streams.resumable_streams import ResumableStreams, StreamReader
from deployments.wire import Refused, RequestError

logger = logging.getLogger(__name__)


class FollowedStream:
    """From an offset on. The stream outlives it. A reader counts here, wherever its stream is."""

    def __init__(self, streams: ResumableStreams, key: StreamKey, client: str, offset: int) -> None:
        self._streams = streams
        self._key = key
        self._client = client
        self._offset = offset

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._streams.admitted(self._client):
            kept = self._streams.find(self._key)
            if kept is not None:
                await StreamReader(self._streams, kept, self._offset).respond(receive, send)
                return
            try:
                await run_while_connected(self._pass_on(send), receive)
            except OSError:  # uvicorn raises it when the client has left
                return

    async def _pass_on(self, send: Send) -> None:
        owner, name = self._key
        peers = self._streams.peers
        states = [] if peers is None else await peers.find(owner, [name])
        if peers is None or not states:
            raise no_stream()
        holder = max(states, key=lambda state: state.began).holder
        async with aclosing(peers.read(holder, self._key, self._offset)) as items:
            begun = await _first(items)
            await send({"type": "http.response.start", "status": 200, "headers": EVENT_HEADERS})
            await send({"type": "http.response.body", "body": begun, "more_body": True})
            async for item in items:
                if isinstance(item, RequestError):
                    raise Refused(item)
                if item:
                    await send({"type": "http.response.body", "body": item, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _first(items: AsyncGenerator[Item, None]) -> bytes:
    """Raises Refused, also when the holder is lost before the stream has begun."""
    try:
        async for item in items:
            if isinstance(item, RequestError):
                raise Refused(item)
            if item is not None:
                return item
    except HolderLostError as error:
        logger.warning("the replica that keeps a stream does not answer: %s", error)
        raise no_stream() from error
    return b""
