"""An application's document and a page that reads it, which loads nothing from elsewhere."""

import base64
import hashlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deployments.ingress.http.openapi import Documentation
from deployments.ingress.http.sse import encode

PAGE = Path(__file__).with_name("docs.html").read_text()


def docs_routes(about: Documentation, document: Callable[[], object]) -> list[Route]:
    encoded = cache(lambda: encode(document()))

    async def openapi(request: Request) -> Response:
        return Response(encoded(), media_type="application/json")

    async def docs(request: Request) -> Response:
        return Response(PAGE, headers=PAGE_HEADERS, media_type="text/html")

    return [Route(about.document, openapi), Route(about.page, docs)]


def _hash(element: str) -> str:
    """Returns the hash by which a browser knows the text of the page's one <script> or <style>."""
    [text] = re.findall(f"<{element}>(.*?)</{element}>", PAGE, re.DOTALL)
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


PAGE_HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; script-src {_hash('script')}; style-src {_hash('style')}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
