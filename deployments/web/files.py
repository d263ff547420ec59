"""The files of the built page, with what a browser may keep of them, and small where it can unpack.

They are read from the disk at each request: a page that is built while the server runs is served.
"""

import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import NotModifiedResponse, PathLike, StaticFiles
from starlette.types import Scope

from deployments.contract.errors import ErrorKind, Refused
from deployments.web.settings import PREFIX

INDEX = "index.html"
IMMUTABLE = "_app/immutable/"  # whose names change with their contents
FOR_A_YEAR = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"  # whether it is still this one
PACKED = ".gz"
NOT_SERVED = (PACKED, ".sha256")  # found beside the files of the page, and no part of it
HOW_TO_BUILD = (
    "The web page is not built. `pip install -e .` in Manta's folder builds it, where npm's "
    "packages can be reached and MANTA_WEB is not 0. The page is then here, without a restart"
)
NO_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Manta</title>
<style>
body { font: 1rem/1.6 system-ui, sans-serif; max-width: 36rem; margin: 15vh auto; padding: 0 1.5rem }
h1 { font-size: 1.5rem }
code { padding: .15em .35em; border-radius: .3em; background: color-mix(in srgb, currentColor 12%, transparent) }
</style>
</head>
<body>
<main>
<h1>The web page is not built</h1>
<p>Manta runs, and its API answers: <a href="../docs">try it</a>. Only this page is missing, because the
installation could not build it, or was told not to. The log of the server says why.</p>
<p>To build it, install again in Manta's folder, where npm's packages can be reached:</p>
<p><code>.venv/bin/pip install -e .</code></p>
<p>With <code>MANTA_WEB=1</code> before it, the installation fails where the page does, and says why. Then load
this address again: the server needs no restart.</p>
</main>
</body>
</html>
"""  # noqa: E501


class PageFiles(StaticFiles):
    """Raises 404 for what is no file of the page. `HEAD`, `ETag` and ranges are Starlette's."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, check_dir=False)

    async def check_config(self) -> None:
        """Nothing is wrong where there is no page yet."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        name = Path(path).as_posix()
        if name.endswith(NOT_SERVED):
            raise HTTPException(404)
        response = await self._packed_or_plain(path, scope)
        response.headers["cache-control"] = FOR_A_YEAR if name.startswith(IMMUTABLE) else ASK_AGAIN
        response.headers["vary"] = "Accept-Encoding"
        return response

    def file_response(
        self,
        full_path: PathLike,
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """Starlette's ETag is of time and size, which two builds may share: all files of an image
        have one time, and all pages one size.
        """
        path = Path(full_path)
        if IMMUTABLE in path.as_posix():
            return super().file_response(full_path, stat_result, scope, status_code)
        response = FileResponse(full_path, status_code, stat_result=stat_result)
        response.headers["etag"] = f'"{sha256(path.read_bytes()).hexdigest()[:32]}"'
        del response.headers["last-modified"]
        if self.is_not_modified(response.headers, Headers(scope=scope)):
            return NotModifiedResponse(response.headers)
        return response

    async def _packed_or_plain(self, path: str, scope: Scope) -> Response:
        if takes_gzip(Headers(scope=scope)):
            with suppress(HTTPException):
                packed = await super().get_response(path + PACKED, scope)
                packed.headers["content-encoding"] = "gzip"
                return packed
        return await super().get_response(path, scope)


def takes_gzip(headers: Headers) -> bool:
    """Whether the client takes gzip by RFC 9110: by its name or by `*`, unless its weight is 0.

    A range is of a plain file.
    """
    if "range" in headers:
        return False
    weights: dict[str, float] = {}
    for item in ",".join(headers.getlist("accept-encoding")).split(","):
        coding, _, parameter = item.strip().lower().partition(";")
        name, _, value = parameter.replace(" ", "").partition("=")
        try:
            weights[coding.strip()] = float(value) if name == "q" else 1.0
        except ValueError:
            weights[coding.strip()] = 0.0
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def page_routes(folder: Path) -> list[BaseRoute]:
    files = PageFiles(folder)

    async def index(request: Request) -> Response:
        if not (folder / INDEX).is_file():
            return _no_page(request)
        return await files.get_response(INDEX, request.scope)

    async def with_slash(request: Request) -> Response:
        """Relative, because a proxy may add a path prefix; the page's own addresses are, too."""
        query = request.url.query
        return RedirectResponse(f"{PREFIX[1:]}/?{query}" if query else f"{PREFIX[1:]}/")

    return [
        Route(PREFIX, with_slash, include_in_schema=False),
        Route(f"{PREFIX}/", index, include_in_schema=False),
        Mount(PREFIX, files),
    ]


def _no_page(request: Request) -> Response:
    if "text/html" in request.headers.get("accept", ""):
        headers = {"cache-control": "no-store", "retry-after": "5"}
        return HTMLResponse(NO_PAGE, 503, headers)
    raise Refused.of_kind(ErrorKind.UNAVAILABLE, HOW_TO_BUILD)
