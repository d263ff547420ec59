"""Every refusal and failure in one table: its HTTP status, and its name in each protocol."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from starlette.responses import Response

from deployments.ingress.http.sse import encode
from deployments.wire import ErrorKind, RequestError

logger = logging.getLogger(__name__)

# A protocol's status and JSON body of an error; the string is the request id.
Envelope = Callable[[RequestError, str], tuple[int, object]]

RETRY_SOON = MappingProxyType({"retry-after": "1"})
RETRY_LATER = MappingProxyType({"retry-after": "5"})
NEVER_RETRY = MappingProxyType({"x-should-retry": "false"})  # the SDKs would, of any 5xx
LAST_REQUEST = MappingProxyType({"connection": "close"})
KEY_WANTED = MappingProxyType({"www-authenticate": "Bearer"})
LONGEST = 2000  # characters of a message, and of the field it names
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Form:
    """What one protocol calls an error."""

    status: int
    type: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A protocol that comes later adds its column here."""

    openai: Form
    anthropic: Form
    llama: Form
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)


CALLER, SERVER = "invalid_request_error", "server_error"
OVERLOAD, MISSING = "overloaded_error", "not_found_error"

ERRORS: Mapping[ErrorKind, ErrorRow] = {
    ErrorKind.INVALID_REQUEST: ErrorRow(Form(400, CALLER), Form(400, CALLER), Form(400, CALLER)),
    ErrorKind.CONTEXT_LENGTH: ErrorRow(
        Form(400, CALLER, "context_length_exceeded"),
        Form(400, CALLER),
        Form(400, "exceed_context_size_error"),
    ),
    ErrorKind.AUTHENTICATION: ErrorRow(
        Form(401, CALLER, "invalid_api_key"),
        Form(401, "authentication_error"),
        Form(401, "authentication_error"),
        KEY_WANTED,
    ),
    ErrorKind.PERMISSION: ErrorRow(
        Form(403, CALLER, "permission_denied"),
        Form(403, "permission_error"),
        Form(403, "permission_error"),
    ),
    ErrorKind.NOT_FOUND: ErrorRow(Form(404, CALLER), Form(404, MISSING), Form(404, MISSING)),
    ErrorKind.MODEL_NOT_FOUND: ErrorRow(
        Form(404, CALLER, "model_not_found"), Form(404, MISSING), Form(404, MISSING)
    ),
    ErrorKind.METHOD_NOT_ALLOWED: ErrorRow(
        Form(405, CALLER, "method_not_allowed"), Form(405, CALLER), Form(405, CALLER)
    ),
    ErrorKind.REQUEST_TIMEOUT: ErrorRow(
        Form(408, CALLER, "request_timeout"),
        Form(408, "timeout_error"),
        Form(408, CALLER),
        LAST_REQUEST,
    ),
    ErrorKind.BODY_TOO_LARGE: ErrorRow(
        Form(413, CALLER, "request_too_large"), Form(413, "request_too_large"), Form(413, CALLER)
    ),
    ErrorKind.UNSUPPORTED_MEDIA_TYPE: ErrorRow(
        Form(415, CALLER, "unsupported_media_type"), Form(415, CALLER), Form(415, CALLER)
    ),
    ErrorKind.OVERLOADED: ErrorRow(
        Form(429, "rate_limit_error", "overloaded"),
        Form(529, OVERLOAD),
        Form(503, "unavailable_error"),
        RETRY_SOON,
    ),
    ErrorKind.OUT_OF_MEMORY: ErrorRow(
        Form(500, SERVER, "out_of_memory"), Form(500, "api_error"), Form(500, SERVER)
    ),
    ErrorKind.INTERNAL: ErrorRow(
        Form(500, SERVER, "internal_error"), Form(500, "api_error"), Form(500, SERVER)
    ),
    ErrorKind.NOT_SUPPORTED: ErrorRow(
        Form(501, CALLER, "not_supported"),
        Form(501, "api_error"),
        Form(501, "not_supported_error"),
        NEVER_RETRY,
    ),
    ErrorKind.UNAVAILABLE: ErrorRow(
        Form(503, SERVER, "service_unavailable"),
        Form(529, OVERLOAD),
        Form(503, "unavailable_error"),
        RETRY_LATER,
    ),
    ErrorKind.MODEL_REPLACED: ErrorRow(
        Form(503, SERVER, "model_replaced"),
        Form(529, OVERLOAD),
        Form(503, "unavailable_error"),
        RETRY_SOON,
    ),
    ErrorKind.GENERATION_TIMEOUT: ErrorRow(
        Form(504, SERVER, "timeout"), Form(504, "timeout_error"), Form(504, SERVER), RETRY_SOON
    ),
}


def internal(failure: object) -> RequestError:
    return RequestError(ErrorKind.INTERNAL, str(failure))


def public(error: RequestError, request_id: str) -> RequestError:
    """The error as a client may see it: what broke inside is logged under the request id, and
    what the client itself sent comes back in part only.
    """
    if error.kind is not ErrorKind.INTERNAL:
        return error if _is_short(error) else _cut(error)
    logger.error("request %s failed: %s", request_id, error.message)
    return replace(error, message=f"The server failed on this request. Request id: {request_id}")


def _is_short(error: RequestError) -> bool:
    return len(error.message) <= LONGEST and len(error.param or "") <= LONGEST


def _cut(error: RequestError) -> RequestError:
    param = error.param and error.param[:LONGEST]
    return replace(error, message=error.message[:LONGEST] + "...", param=param)


def error_response(
    error: RequestError,
    envelope: Envelope,
    request_id: str,
    headers: Mapping[str, str] = NO_HEADERS,
) -> Response:
    status, body = envelope(public(error, request_id), request_id)
    known = ERRORS[error.kind].headers
    return Response(encode(body), status, {**known, **headers}, "application/json")
