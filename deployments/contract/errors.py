"""The errors that travel between processes as values, and the exception within one."""

from dataclasses import dataclass
from enum import StrEnum


class ErrorKind(StrEnum):
    """Why a request was refused or ended early; `ingress.http.errors` has the HTTP statuses."""

    INVALID_REQUEST = "invalid_request"
    CONTEXT_LENGTH = "context_length"
    NOT_FOUND = "not_found"
    NO_PREVIOUS_RESPONSE = "no_previous_response"  # that a request could continue
    MODEL_NOT_FOUND = "model_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    AUTHENTICATION = "authentication"
    PERMISSION = "permission"
    FEATURE_DISABLED = "feature_disabled"  # until an operator turns it on
    REQUEST_TIMEOUT = "request_timeout"  # the body did not arrive in time
    GENERATION_TIMEOUT = "generation_timeout"  # the answer did not end in time
    NOT_SUPPORTED = "not_supported"  # switched off, or impossible with this model
    BODY_TOO_LARGE = "body_too_large"
    MISDIRECTED = "misdirected"  # to a name that is not this server's
    CONFLICT = "conflict"  # with what is stored under this id
    GONE = "gone"  # it was deleted
    STALE = "stale"  # made from what is no longer stored
    UPGRADE_REQUIRED = "upgrade_required"  # from a WebSocket to HTTP
    CONDITION_NEEDED = "condition_needed"
    WRONG_DIGEST = "wrong_digest"
    RATE_LIMITED = "rate_limited"
    STORAGE_FULL = "storage_full"
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type"
    OVERLOADED = "overloaded"
    MODEL_REPLACED = "model_replaced"
    UNAVAILABLE = "unavailable"
    REPLICA_DIED = "replica_died"  # of this request, it seems
    OUT_OF_MEMORY = "out_of_memory"  # for this request alone
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class RequestError:
    """A refusal or failure as a value: exceptions change their type on the way through Ray."""

    kind: ErrorKind
    message: str
    param: str | None = None


class Refused(Exception):
    """A RequestError raised within one process; between actors the value itself travels."""

    def __init__(self, error: RequestError) -> None:
        super().__init__(error)
        self.error = error

    @classmethod
    def of_kind(cls, kind: ErrorKind, message: str, param: str | None = None) -> "Refused":
        """An exception to raise. `param` is the field of the request that is at fault, if any."""
        return cls(RequestError(kind, message, param))

    def __str__(self) -> str:
        return self.error.message


def refused(message: str, param: str | None = None) -> Refused:
    """A bad request, to be raised. `param` is the field that is at fault, if it is one."""
    return Refused.of_kind(ErrorKind.INVALID_REQUEST, message, param)
