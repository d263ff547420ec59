"""A response with the bytes of a kept stream, whichever replica keeps it."""

import logging
from contextlib import aclosing

from starlette.types import Message, Receive, Scope, Send

from deployments.ingress.generation.answer import run_while_connected
from deployments.ingress.http.sse import StreamType
from deployments.ingress.streams.peers import StreamKey, StreamLostError, no_stream
from deployments.ingress.streams.resumable_streams import ResumableStreams, StreamReader

logger = logging.getLogger(__name__)


class FollowedStream:
    """An answer with the bytes of a stream from an offset on. The stream outlives it.

    A reader counts here, wherever its stream is.
    """

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
        state = max(states, key=lambda state: state.began)
        is_begun = False
        async with aclosing(peers.read(state.replica_id, self._key, self._offset)) as parts:
            try:
                async for part in parts:
                    if not is_begun and (part.is_begun or part.is_done):
                        is_begun = True
                        await send(_start(state.stream_type))
                    if part.data:
                        await send(_body(part.data, more=True))
            except StreamLostError as error:
                if is_begun:
                    raise  # breaks the connection: the answer must not look complete
                logger.warning("a kept stream was lost: %s", error)
                raise no_stream() from error
        await send(_body(b"", more=False))


def _start(stream_type: StreamType) -> Message:
    headers = stream_type.raw_headers
    return {"type": "http.response.start", "status": 200, "headers": headers}


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}
