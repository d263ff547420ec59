"""The body of a request as JSON: bounded while it is read, and refused with the reason."""

import asyncio
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import NoReturn

from starlette.requests import Request

from deployments.contract.errors import ErrorKind, Refused, refused
from deployments.ingress.http.body_budget import account_of
from deployments.ingress.http.json_body.pieces import LargeJson
from deployments.ingress.http.json_body.weight import check_weight
from deployments.ingress.settings import IngressSettings

COMMAND_LIMIT = 1 << 20  # bytes
LARGE = 1 << 20  # bytes
DEPTH_LIMIT = 64
BYTE_ORDER_MARK = "\ufeff"
SURROGATE = re.compile(r"[\ud800-\udfff]")


async def read_command(request: Request, settings: IngressSettings) -> bytearray:
    """Reads a body that holds only names, as `read_body` does."""
    limit = min(settings.body_limit, COMMAND_LIMIT)
    return await read_body(request, replace(settings, body_limit=limit))


async def read_body(request: Request, settings: IngressSettings) -> bytearray:
    """Raises Refused, also when the body does not arrive in time, and ClientDisconnect."""
    limit = settings.body_limit
    _check_content_type(request.headers.get("content-type", ""))
    return await read_bytes(request, limit, settings.body_timeout_s, _too_large(limit))


async def read_bytes(
    request: Request, limit: int, timeout_s: float, too_large: Refused
) -> bytearray:
    """A body of any type. `too_large` is raised for one of more than `limit` bytes."""
    _check_encoding(request.headers.get("content-encoding", ""))
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and float(declared) > limit:
        raise too_large
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(request, limit, too_large)
    except TimeoutError as error:
        message = f"The body did not arrive within {timeout_s:g} seconds"
        raise Refused.of_kind(ErrorKind.REQUEST_TIMEOUT, message) from error


async def _read(request: Request, limit: int, too_large: Refused) -> bytearray:
    body, account = bytearray(), account_of(request)
    async for chunk in request.stream():
        if len(body) + len(chunk) > limit:
            raise too_large
        if account is not None:
            account.grow(len(body) + len(chunk))
        body += chunk
    return body


def parse_json(body: bytes | bytearray) -> object:
    """The value, with every string encodable as UTF-8, every number finite, no name twice in an
    object, at most 64 deep, and no heavier than `check_weight` allows.
    """
    check_weight(body)
    try:
        text = body.decode()
        if text.startswith(BYTE_ORDER_MARK):
            raise refused("The body begins with a byte order mark (BOM), which is no part of JSON")
        value: object = (LARGE_JSON if len(body) > LARGE else DECODER).decode(text)
    except UnicodeDecodeError as error:
        raise refused(f"The body is not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        position = f"line {error.lineno} column {error.colno}"
        raise refused(f"The body is not JSON: {error.msg} at {position}") from error
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:  # an integer of thousands of digits
        raise refused("The body holds a number that is too long") from error
    _check_values(value, text)
    return value


def _check_content_type(header: str) -> None:
    media_type, _, parameters = header.partition(";")
    charset = parameters.lower().partition("charset=")[2].strip(' "')
    if media_type.strip().lower() != "application/json" or charset not in ("", "utf-8", "utf8"):
        message = "The content-type header must be application/json"
        raise Refused.of_kind(ErrorKind.UNSUPPORTED_MEDIA_TYPE, message)


def _check_encoding(header: str) -> None:
    if header.strip().lower() not in ("", "identity"):
        message = "The content-encoding header is not supported: send the body as it is"
        raise Refused.of_kind(ErrorKind.UNSUPPORTED_MEDIA_TYPE, message)


def _check_values(value: object, text: str) -> None:
    """Walks the value only if its text may hold something wrong."""
    escaped = "\\ud" in text or "\\uD" in text
    if not escaped and text.count("[") + text.count("{") <= DEPTH_LIMIT:
        return
    level, depth = [value], 0
    while level:
        if escaped:
            _check_strings(level)
        if depth == DEPTH_LIMIT and any(isinstance(item, (dict, list)) for item in level):
            raise _too_deep()
        level, depth = _children_of(level), depth + 1


def _children_of(values: Iterable[object]) -> list[object]:
    """The items of lists and the values of objects among `values`."""
    children: list[object] = []
    for value in values:
        if isinstance(value, dict):
            children += value.values()
        elif isinstance(value, list):
            children += value
    return children


def _check_strings(values: Iterable[object]) -> None:
    """Strings among the values, and the names in objects among them."""
    for value in values:
        for text in value if isinstance(value, dict) else (value,):
            if isinstance(text, str) and not text.isascii() and SURROGATE.search(text):
                raise refused("The body holds half of a surrogate pair, which is no character")


def _no_constant(name: str) -> NoReturn:
    raise refused(f"The body is not JSON: {name} is no number")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise refused("The body holds a number that is too large")
    return value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise refused(f"The body holds {name!r} more than once in one object")
    return value


def _too_deep() -> Refused:
    return refused(f"The body is nested more than {DEPTH_LIMIT} levels deep")


def _too_large(limit: int) -> Refused:
    message = f"The body is larger than the limit of {limit} bytes"
    return Refused.of_kind(ErrorKind.BODY_TOO_LARGE, message)


DECODER = json.JSONDecoder(
    parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_object
)
LARGE_JSON = LargeJson(DECODER, _object)
