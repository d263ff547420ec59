"""Which web pages may ask: those of the origins that the operator names, and without cookies."""

from collections.abc import Sequence

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

METHODS = ("GET", "POST", "PUT", "DELETE")
EXPOSED_HEADERS = ("x-request-id", "request-id", "retry-after", "x-manta-warning")


def cors(app: ASGIApp, origins: Sequence[str]) -> ASGIApp:
    """`app` with CORS headers on every answer, errors included, for `origins`.

    Any header may be sent: the SDKs have dozens, and keys come in headers and never in cookies.
    """
    return CORSMiddleware(
        app,
        allow_origins=origins,
        allow_methods=METHODS,
        allow_headers=("*",),
        allow_credentials=False,
        expose_headers=EXPOSED_HEADERS,
    )
