"""Endpoints that this server does not have: each is refused with its reason."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.contract.errors import ErrorKind, Refused


def unsupported_routes(paths: Mapping[str, str]) -> list[Route]:
    """`paths`: each with what its clients look for there."""
    return [_route(path, what) for path, what in paths.items()]


def not_supported(what: str) -> Refused:
    message = f"This server does not support {what}"
    return Refused.of_kind(ErrorKind.NOT_SUPPORTED, message)


def _route(path: str, what: str) -> Route:
    async def refuse(request: Request) -> Response:
        raise not_supported(what)

    return Route(path, refuse, methods=["POST"], include_in_schema=False)
