"""llama-server's error body, in which `code` is the HTTP status."""

from deployments.contract.errors import RequestError
from deployments.ingress.generation.plan import ContextError
from deployments.ingress.http.errors import ERRORS


def envelope(error: RequestError, request_id: str) -> tuple[int, object]:
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
