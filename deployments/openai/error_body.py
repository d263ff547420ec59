"""OpenAI's error body: four fields, which are always present."""

from deployments.contract.errors import RequestError
from deployments.ingress.http.errors import ERRORS


def openai_envelope(error: RequestError, request_id: str) -> tuple[int, object]:
    return ERRORS[error.kind].openai.status, {"error": error_fields(error)}


def error_fields(error: RequestError) -> dict[str, object]:
    form = ERRORS[error.kind].openai
    return {
        "message": error.message,
        "type": form.type,
        "param": error.param,
        "code": form.code,
    }
