"""The body of an error in each protocol: applications share paths, and answer each client in its
own form.
"""

from deployments.contract.errors import RequestError
from deployments.ingress.generation.plan import ContextError
from deployments.ingress.http.errors import ERRORS
from deployments.ingress.http.sse import data, encode

# The SDKs' tool runners read this to send whole conversations instead of threads.
NO_THREADS = {"details": {"error_code": "thread_unsupported_request", "unsupported": None}}


def openai_envelope(error: RequestError, request_id: str) -> tuple[int, object]:
    return ERRORS[error.kind].openai.status, {"error": openai_error_fields(error)}


def openai_error_fields(error: RequestError) -> dict[str, object]:
    """OpenAI's four fields, which are always present."""
    form = ERRORS[error.kind].openai
    return {
        "message": error.message,
        "type": form.type,
        "param": error.param,
        "code": form.code,
    }


def anthropic_envelope(error: RequestError, request_id: str) -> tuple[int, object]:
    form = ERRORS[error.kind].anthropic
    details = NO_THREADS if error.param == "thread" else {}
    body = {"type": form.type, "message": _naming_message(error), **details}
    return form.status, {"type": "error", "error": body, "request_id": request_id}


def _naming_message(error: RequestError) -> str:
    """Anthropic's body has no field for `param`, so the message names it."""
    if error.param is None or error.param in error.message:
        return error.message
    return f"`{error.param}`: {error.message}"


def llama_envelope(error: RequestError, request_id: str) -> tuple[int, object]:
    """llama-server's `code` is the HTTP status."""
    form = ERRORS[error.kind].llama
    body: dict[str, object] = {
        "message": error.message,
        "type": form.type,
        "code": form.status,
    }
    if error.param is not None:
        body["param"] = error.param
    if isinstance(error, ContextError):
        body |= {"n_prompt_tokens": error.n_prompt_tokens, "n_ctx": error.n_ctx}
    return form.status, {"error": body}


def llama_error_event(error: RequestError) -> bytes:
    """Returns the last event of a stream of llama-server's that fails. No [DONE] follows."""
    _, body = llama_envelope(error, "")
    return data(encode(body))
