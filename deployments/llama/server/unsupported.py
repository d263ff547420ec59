"""llama-server's endpoint that is not supported. It is refused with a message of its own."""

import json

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route


def refused_route() -> Route:
    return Route("/cors-proxy", feature_disabled, methods=["GET", "POST"], include_in_schema=False)


async def feature_disabled(request: Request) -> Response:
    """llama-server's body for this error, which has no code."""
    error = {"message": "this feature is disabled", "type": "feature_disabled"}
    return Response(json.dumps({"error": error}), 403, media_type="application/json")
