"""Anthropic's header with the id of a request."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.ingress.http.app import REQUEST_ID

SDK_REQUEST_ID = "request-id"  # the response header that the SDKs read


class RequestIds:
    """Adds the request id in the response header that the SDKs read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[SDK_REQUEST_ID] = headers[REQUEST_ID]
            await send(message)

        await self.app(scope, receive, named)
