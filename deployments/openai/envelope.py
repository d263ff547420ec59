"""OpenAI's form of an error: four fields, all of them always there."""

from deployments.ingress.errors import ERRORS
from deployments.wire import RequestError


def openai_envelope(error: RequestError, request_id: str) -> tuple[int, object]:
    form = ERRORS[error.kind].openai
    body = {
        "message": error.message,
        "type": form.type,
        "param": error.param,
        "code": form.code,
    }
    return form.status, {"error": body}
