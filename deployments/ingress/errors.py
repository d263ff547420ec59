"""Every refusal and failure in one table: its HTTP status, and its name in each protocol."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from starlette.responses import Response

from deployments.ingress.sse import encode
from deployments.wire import ErrorKind, Refused, RequestError

logger = logging.getLogger(__name__)

Envelope = Callable[[RequestError], object]  # a protocol's JSON body of an error

RETRY_SOON = MappingProxyType({"retry-after": "1"})
RETRY_LATER = MappingProxyType({"retry-after": "5"})
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A protocol that comes later adds its column here."""

    status: int
    openai_type: str
    openai_code: str | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)


CALLER, SERVER = "invalid_request_error", "server_error"

ERRORS: Mapping[ErrorKind, ErrorRow] = {
    ErrorKind.INVALID_REQUEST: ErrorRow(400, CALLER),
    ErrorKind.CONTEXT_LENGTH: ErrorRow(400, CALLER, "context_length_exceeded"),
    ErrorKind.NOT_FOUND: ErrorRow(404, CALLER),
    ErrorKind.MODEL_NOT_FOUND: ErrorRow(404, CALLER, "model_not_found"),
    ErrorKind.METHOD_NOT_ALLOWED: ErrorRow(405, CALLER, "method_not_allowed"),
    ErrorKind.BODY_TOO_LARGE: ErrorRow(413, CALLER, "request_too_large"),
    ErrorKind.UNSUPPORTED_MEDIA_TYPE: ErrorRow(415, CALLER, "unsupported_media_type"),
    ErrorKind.OVERLOADED: ErrorRow(429, "rate_limit_error", "overloaded", RETRY_SOON),
    ErrorKind.UNAVAILABLE: ErrorRow(503, SERVER, "service_unavailable", RETRY_LATER),
    ErrorKind.MODEL_REPLACED: ErrorRow(503, SERVER, "model_replaced", RETRY_SOON),
    ErrorKind.INTERNAL: ErrorRow(500, SERVER, "internal_error"),
}


def refused(message: str, param: str | None = None) -> Refused:
    return Refused(RequestError(ErrorKind.INVALID_REQUEST, message, param))


def internal(failure: object) -> RequestError:
    return RequestError(ErrorKind.INTERNAL, str(failure))


def public(error: RequestError, request_id: str) -> RequestError:
    """The error as a client may see it: what broke inside is logged under the request id."""
    if error.kind is not ErrorKind.INTERNAL:
        return error
    logger.error("request %s failed: %s", request_id, error.message)
    return replace(error, message=f"The server failed on this request. Request id: {request_id}")


def error_response(
    error: RequestError,
    envelope: Envelope,
    request_id: str,
    headers: Mapping[str, str] = NO_HEADERS,
) -> Response:
    row = ERRORS[error.kind]
    return Response(
        encode(envelope(public(error, request_id))),
        row.status,
        {**row.headers, **headers},
        "application/json",
    )
