"""Tells what an answer leaves out of its request, in a header of it and in a line of the log."""

import logging
from collections.abc import Iterable, Sequence

from deployments.ingress.generation.response_builder import Generation

logger = logging.getLogger(__name__)

HEADER = b"x-manta-warning"
MAX_LENGTH = 1000  # bytes of the header, and characters of the line


def warnings_of(generations: Iterable[Generation]) -> list[str]:
    """The warnings of all choices, each once."""
    return list(dict.fromkeys(text for generation in generations for text in generation.warnings))


def log_warnings(request_id: str, warnings: Sequence[str]) -> None:
    if warnings:
        logger.warning("request %s: %s", request_id, _joined(warnings))


def warning_headers(warnings: Sequence[str]) -> list[tuple[bytes, bytes]]:
    return [(HEADER, _joined(warnings).encode())] if warnings else []


def _joined(warnings: Sequence[str]) -> str:
    """One short line of visible ASCII: they quote the request."""
    text = "; ".join(warnings)[:MAX_LENGTH].encode("ascii", "backslashreplace").decode()
    return "".join(character if character.isprintable() else "?" for character in text)
