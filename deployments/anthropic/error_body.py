"""Anthropic's error body and request id."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deployments.contract.errors import RequestError
from deployments.ingress.http.app import REQUEST_ID
from deployments.ingress.http.errors import ERRORS

SDK_REQUEST_ID = "request-id"  # the response header that the SDKs read
# The SDKs' tool runners read this to send whole conversations instead of threads.
NO_THREADS = {"details": {"error_code": "thread_unsupported_request", "unsupported": None}}


def anthropic_envelope(error: RequestError, request_id: str) -> tuple[int, object]:
    form = ERRORS[error.kind].anthropic
    details = NO_THREADS if error.param == "thread" else {}
    body = {"type": form.type, "message": _message(error), **details}
    return form.status, {"type": "error", "error": body, "request_id": request_id}


def _message(error: RequestError) -> str:
    """The body has no field for `param`, so the message names it."""
    if error.param is None or error.param in error.message:
        return error.message
    return f"`{error.param}`: {error.message}"


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
