"""Answers in JSON, which nobody may keep: they are of one owner."""

from collections.abc import Mapping

from starlette.responses import Response

from deployments.ingress.http.sse import encode

JSON = "application/json"
PRIVATE = {"cache-control": "no-store"}


def json_answer(value: Mapping[str, object]) -> Response:
    return Response(encode(value), headers=PRIVATE, media_type=JSON)
