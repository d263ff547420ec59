"""The HTTP status and the name of each kind of error in each protocol, in one table."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from starlette.responses import Response

from deployments.contract.errors import ErrorKind, RequestError
from deployments.ingress.http.sse import encode

logger = logging.getLogger(__name__)

# (error, request id) -> status and JSON body, as a protocol has them
ErrorFormat = Callable[[RequestError, str], tuple[int, object]]

RETRY_SOON = MappingProxyType({"retry-after": "1"})
RETRY_LATER = MappingProxyType({"retry-after": "5"})
NEVER_RETRY = MappingProxyType({"x-should-retry": "false"})  # the SDKs retry any 5xx
CLOSE_CONNECTION = MappingProxyType({"connection": "close"})
TO_HTTP = MappingProxyType({"upgrade": "HTTP/1.1", "connection": "upgrade, close"})
BEARER_CHALLENGE = MappingProxyType({"www-authenticate": "Bearer"})
MAX_ERROR_LENGTH = 2000  # characters of a message, and of the field it names
NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """An error as one protocol has it."""

    status: int
    type: str
    code: str | None = None


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """A kind of error; each protocol has a column."""

    openai: ErrorForm
    anthropic: ErrorForm
    llama: ErrorForm
    headers: Mapping[str, str] = field(default_factory=lambda: NO_HEADERS)


# What ends a task or a process is no failure. All else is one: also a panic of a library in Rust,
# which is no Exception.
ENDINGS = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)

CALLER, SERVER = "invalid_request_error", "server_error"
OVERLOAD, MISSING = "overloaded_error", "not_found_error"

ERRORS: Mapping[ErrorKind, ErrorRow] = {
    ErrorKind.INVALID_REQUEST: ErrorRow(
        ErrorForm(400, CALLER), ErrorForm(400, CALLER), ErrorForm(400, CALLER)
    ),
    ErrorKind.CONTEXT_LENGTH: ErrorRow(
        ErrorForm(400, CALLER, "context_length_exceeded"),
        ErrorForm(400, CALLER),
        ErrorForm(400, "exceed_context_size_error"),
    ),
    ErrorKind.AUTHENTICATION: ErrorRow(
        ErrorForm(401, CALLER, "invalid_api_key"),
        ErrorForm(401, "authentication_error"),
        ErrorForm(401, "authentication_error"),
        BEARER_CHALLENGE,
    ),
    ErrorKind.PERMISSION: ErrorRow(
        ErrorForm(403, CALLER, "permission_denied"),
        ErrorForm(403, "permission_error"),
        ErrorForm(403, "permission_error"),
    ),
    ErrorKind.FEATURE_DISABLED: ErrorRow(
        ErrorForm(403, CALLER, "feature_disabled"),
        ErrorForm(403, "permission_error"),
        ErrorForm(403, "feature_disabled"),
    ),
    ErrorKind.NOT_FOUND: ErrorRow(
        ErrorForm(404, CALLER), ErrorForm(404, MISSING), ErrorForm(404, MISSING)
    ),
    ErrorKind.NO_PREVIOUS_RESPONSE: ErrorRow(
        ErrorForm(400, CALLER, "previous_response_not_found"),
        ErrorForm(400, CALLER),
        ErrorForm(400, CALLER),
    ),
    ErrorKind.MODEL_NOT_FOUND: ErrorRow(
        ErrorForm(404, CALLER, "model_not_found"), ErrorForm(404, MISSING), ErrorForm(404, MISSING)
    ),
    ErrorKind.METHOD_NOT_ALLOWED: ErrorRow(
        ErrorForm(405, CALLER, "method_not_allowed"), ErrorForm(405, CALLER), ErrorForm(405, CALLER)
    ),
    ErrorKind.REQUEST_TIMEOUT: ErrorRow(
        ErrorForm(408, CALLER, "request_timeout"),
        ErrorForm(408, "timeout_error"),
        ErrorForm(408, CALLER),
        CLOSE_CONNECTION,
    ),
    ErrorKind.BODY_TOO_LARGE: ErrorRow(
        ErrorForm(413, CALLER, "request_too_large"),
        ErrorForm(413, "request_too_large"),
        ErrorForm(413, CALLER),
    ),
    ErrorKind.UNSUPPORTED_MEDIA_TYPE: ErrorRow(
        ErrorForm(415, CALLER, "unsupported_media_type"),
        ErrorForm(415, CALLER),
        ErrorForm(415, CALLER),
    ),
    ErrorKind.MISDIRECTED: ErrorRow(
        ErrorForm(421, CALLER, "misdirected_request"),
        ErrorForm(421, CALLER),
        ErrorForm(421, CALLER),
    ),
    ErrorKind.CONFLICT: ErrorRow(
        ErrorForm(409, CALLER, "conflict"),
        ErrorForm(409, "conflict_error"),
        ErrorForm(409, "conflict_error"),
    ),
    ErrorKind.GONE: ErrorRow(
        ErrorForm(410, CALLER, "gone"),
        ErrorForm(410, "gone_error"),
        ErrorForm(410, "gone_error"),
    ),
    ErrorKind.STALE: ErrorRow(
        ErrorForm(412, CALLER, "stale"),
        ErrorForm(412, "stale_error"),
        ErrorForm(412, "stale_error"),
    ),
    ErrorKind.WRONG_DIGEST: ErrorRow(
        ErrorForm(422, CALLER, "wrong_digest"),
        ErrorForm(422, CALLER),
        ErrorForm(422, CALLER),
    ),
    ErrorKind.UPGRADE_REQUIRED: ErrorRow(
        ErrorForm(426, CALLER, "upgrade_required"),
        ErrorForm(426, CALLER),
        ErrorForm(426, CALLER),
        TO_HTTP,
    ),
    ErrorKind.CONDITION_NEEDED: ErrorRow(
        ErrorForm(428, CALLER, "condition_needed"),
        ErrorForm(428, CALLER),
        ErrorForm(428, CALLER),
    ),
    ErrorKind.RATE_LIMITED: ErrorRow(
        ErrorForm(429, "rate_limit_error", "rate_limited"),
        ErrorForm(429, "rate_limit_error"),
        ErrorForm(429, "rate_limit_error"),
        RETRY_SOON,
    ),
    ErrorKind.STORAGE_FULL: ErrorRow(
        ErrorForm(507, CALLER, "storage_full"),
        ErrorForm(507, "storage_full_error"),
        ErrorForm(507, "storage_full_error"),
        NEVER_RETRY,
    ),
    ErrorKind.OVERLOADED: ErrorRow(
        ErrorForm(429, "rate_limit_error", "overloaded"),
        ErrorForm(529, OVERLOAD),
        ErrorForm(503, "unavailable_error"),
        RETRY_SOON,
    ),
    ErrorKind.OUT_OF_MEMORY: ErrorRow(
        ErrorForm(500, SERVER, "out_of_memory"), ErrorForm(500, "api_error"), ErrorForm(500, SERVER)
    ),
    ErrorKind.INTERNAL: ErrorRow(
        ErrorForm(500, SERVER, "internal_error"),
        ErrorForm(500, "api_error"),
        ErrorForm(500, SERVER),
    ),
    ErrorKind.REPLICA_DIED: ErrorRow(
        ErrorForm(500, SERVER, "replica_died"),
        ErrorForm(500, "api_error"),
        ErrorForm(500, SERVER),
        NEVER_RETRY,
    ),
    ErrorKind.NOT_SUPPORTED: ErrorRow(
        ErrorForm(501, CALLER, "not_supported"),
        ErrorForm(501, "api_error"),
        ErrorForm(501, "not_supported_error"),
        NEVER_RETRY,
    ),
    ErrorKind.UNAVAILABLE: ErrorRow(
        ErrorForm(503, SERVER, "service_unavailable"),
        ErrorForm(529, OVERLOAD),
        ErrorForm(503, "unavailable_error"),
        RETRY_LATER,
    ),
    ErrorKind.MODEL_REPLACED: ErrorRow(
        ErrorForm(503, SERVER, "model_replaced"),
        ErrorForm(529, OVERLOAD),
        ErrorForm(503, "unavailable_error"),
        RETRY_SOON,
    ),
    ErrorKind.GENERATION_TIMEOUT: ErrorRow(
        ErrorForm(504, SERVER, "timeout"),
        ErrorForm(504, "timeout_error"),
        ErrorForm(504, SERVER),
        RETRY_SOON,
    ),
}


def internal_error(failure: object) -> RequestError:
    return RequestError(ErrorKind.INTERNAL, str(failure))


def public_error(error: RequestError, request_id: str) -> RequestError:
    """The error as a client may see it. An internal error is logged under the request id and
    hidden; long messages are cut, because they may quote the request.
    """
    if error.kind is not ErrorKind.INTERNAL:
        return error if _is_short(error) else _cut(error)
    logger.error("request %s failed: %s", request_id, error.message)
    return replace(error, message=f"The server failed on this request. Request id: {request_id}")


def _is_short(error: RequestError) -> bool:
    return len(error.message) <= MAX_ERROR_LENGTH and len(error.param or "") <= MAX_ERROR_LENGTH


def _cut(error: RequestError) -> RequestError:
    param = error.param and error.param[:MAX_ERROR_LENGTH]
    return replace(error, message=error.message[:MAX_ERROR_LENGTH] + "...", param=param)


def error_response(
    error: RequestError,
    envelope: ErrorFormat,
    request_id: str,
    headers: Mapping[str, str] = NO_HEADERS,
) -> Response:
    status, body = envelope(public_error(error, request_id), request_id)
    known = ERRORS[error.kind].headers
    return Response(encode(body), status, {**known, **headers}, "application/json")
