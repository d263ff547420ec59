"""llama-server's form of an error, where `code` is the HTTP status."""

from dataclasses import dataclass

from deployments.ingress.errors import ERRORS
from deployments.wire import ErrorKind, ModelCard, Refused, RequestError


@dataclass(frozen=True, slots=True)
class ContextError(RequestError):
    n_prompt_tokens: int = 0
    n_ctx: int = 0


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


def check_context(prompt_tokens: int, card: ModelCard) -> None:
    """Raises Refused with the numbers that clients cut their prompts by."""
    context = card.context_length
    if prompt_tokens >= context:
        message = (
            f"the request ({prompt_tokens} tokens) exceeds the available context size "
            f"({context} tokens)"
        )
        error = ContextError(ErrorKind.CONTEXT_LENGTH, message, "prompt", prompt_tokens, context)
        raise Refused(error)
