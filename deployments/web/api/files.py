"""The endpoints of files: bytes under their SHA-256. Browsers save them, and never show them."""

import asyncio
import math
import re
from hashlib import sha256

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from deployments.contract.errors import ErrorKind, Refused, refused
from deployments.ingress.http.body import read_bytes
from deployments.ingress.http.clients import owner_of
from deployments.ingress.http.schema import PATTERNS, SHA256
from deployments.ingress.settings import IngressSettings
from deployments.serving.detached_tasks import to_its_end
from deployments.store.chats import now_ms
from deployments.store.limits import too_much
from deployments.web.api.opening import StoreOpener

ANY_TYPE = "application/octet-stream"
TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}", re.ASCII)
# A file may be a page with scripts.
SAFE = {
    "content-disposition": "attachment",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; sandbox",
    "cache-control": "no-store",
}


class FileEndpoints:
    def __init__(self, opener: StoreOpener, settings: IngressSettings) -> None:
        self._opener = opener
        self._settings = settings

    async def get(self, request: Request) -> Response:
        """Answers GET and HEAD."""
        owner, digest = owner_of(request), _digest(request)
        files = self._opener.store.files
        found = await to_its_end(files.find(owner, digest))
        if found is None:
            raise Refused.of_kind(ErrorKind.NOT_FOUND, f"There is no file {digest}", "sha256")
        headers = {**SAFE, "content-type": found.type, "content-length": str(found.size)}
        if request.method == "HEAD":
            return Response(headers=headers)
        return StreamingResponse(files.parts(owner, digest), headers=headers)

    async def put(self, request: Request) -> Response:
        store, digest, type_ = self._opener.store, _digest(request), _type(request)
        data = await self._read(request, store.limits.max_file_bytes)
        if await asyncio.to_thread(_digest_of, data) != digest:
            message = "The body's SHA-256 is another one than that of the path"
            raise Refused.of_kind(ErrorKind.WRONG_DIGEST, message, "sha256")
        put = store.files.put(owner_of(request), digest, type_, data, now_ms())
        await to_its_end(put)
        return Response(status_code=204)

    async def _read(self, request: Request, limit: int) -> bytearray:
        """A large file has more time than a short body."""
        settings = self._settings
        refusal = too_much("A file of so many bytes", limit, "max_file_bytes")
        declared = request.headers.get("content-length", "")
        n_bytes = min(limit, int(declared)) if re.fullmatch("[0-9]{1,15}", declared) else 0
        timeout_s = settings.body_timeout_s * max(1, math.ceil(n_bytes / settings.body_limit))
        return await read_bytes(request, limit, timeout_s, refusal)


def _digest_of(data: bytearray) -> str:
    return sha256(data).hexdigest()


def _digest(request: Request) -> str:
    digest: str = request.path_params["sha256"]
    if not re.fullmatch(SHA256, digest):
        raise refused(f"`sha256` must be {PATTERNS[SHA256]}", "sha256")
    return digest


def _type(request: Request) -> str:
    """Returns the media type of the body, without parameters."""
    given = request.headers.get("content-type", ANY_TYPE).partition(";")[0].strip().lower()
    if not TYPE.fullmatch(given):
        raise refused("The content-type header must be the file's media type", "content-type")
    return given
