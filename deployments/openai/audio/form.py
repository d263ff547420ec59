"""Reads multipart forms: one file and short fields, within the limits of a body."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field

from python_multipart.multipart import parse_options_header
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from deployments.contract.errors import ErrorKind, Refused, refused
from deployments.ingress.http.body import read_bytes
from deployments.ingress.settings import IngressSettings

FORM = "multipart/form-data"
MAX_FIELDS = 64
MAX_FIELD_BYTES = 64 << 10
CHUNK_BYTES = 64 << 10  # are parsed at once: others have their turns between


@dataclass(frozen=True, slots=True)
class Form:
    """fields: by name, in their order."""

    fields: Mapping[str, Sequence[str]]
    file: bytes = field(repr=False)
    n_bytes: int  # of the whole body


class _FormParser(MultiPartParser):
    """Takes the file also where the form gives it no name."""

    def on_headers_finished(self) -> None:
        part = self._current_part
        _, options = parse_options_header(part.content_disposition)
        if options.get(b"name") == b"file" and b"filename" not in options:
            part.content_disposition = (part.content_disposition or b"") + b'; filename="file"'
        super().on_headers_finished()


async def read_form(request: Request, settings: IngressSettings) -> Form:
    """`file` is the one file. Raises Refused and ClientDisconnect."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != FORM:
        message = f"The content-type header must be {FORM}"
        raise Refused.of_kind(ErrorKind.UNSUPPORTED_MEDIA_TYPE, message)
    limit = settings.body_limit
    too_large = Refused.of_kind(
        ErrorKind.BODY_TOO_LARGE, f"The body is larger than the limit of {limit} bytes"
    )
    body = await read_bytes(request, limit, settings.body_timeout_s, too_large)
    return await _parsed(request, body)


async def _parsed(request: Request, body: bytearray) -> Form:
    async def chunks() -> AsyncGenerator[bytes, None]:
        view = memoryview(body)
        for begin in range(0, len(body), CHUNK_BYTES):
            yield bytes(view[begin : begin + CHUNK_BYTES])
            await asyncio.sleep(0)

    parser = _FormParser(
        request.headers,
        chunks(),
        max_files=1,
        max_fields=MAX_FIELDS,
        max_part_size=MAX_FIELD_BYTES,
    )
    try:
        form = await parser.parse()
    except (MultiPartException, LookupError, UnicodeError) as error:
        reason = getattr(error, "message", None) or "it has no boundary, or can't be decoded"
        raise refused(f"The body is no form: {reason}") from error
    fields: dict[str, list[str]] = {}
    file: bytes | None = None
    try:
        for name, value in form.multi_items():
            if isinstance(value, str):
                fields.setdefault(name, []).append(value)
            elif name == "file":
                file = await value.read()
            else:
                raise refused(f"`{name}` must be no file: the sound goes into `file`", name)
    finally:
        await form.close()
    if file is None:
        raise refused("`file` is required", "file")
    return Form(fields, file, len(body))
