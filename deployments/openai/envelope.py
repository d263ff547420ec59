"""OpenAI's form of an error: four fields, all of them always there."""

from deployments.ingress.errors import ERRORS
from deployments.wire import RequestError


def openai_envelope(error: RequestError) -> object:
    row = ERRORS[error.kind]
    return {
        "error": {
            "message": error.message,
            "type": row.openai_type,
            "param": error.param,
            "code": row.openai_code,
        }
    }
