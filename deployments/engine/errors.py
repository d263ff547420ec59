"""Errors that several parts of the engine raise for the same reason."""

from collections.abc import Iterator
from contextlib import contextmanager

MAX_CAUSE_CHARS = 500  # of another error's message that an error quotes


class UnsupportedModelError(ValueError):
    """The model needs something that the engine does not have, or some of its files are missing."""


@contextmanager
def unsupported_on_error(reason: str) -> Iterator[None]:
    """Raises UnsupportedModelError for errors of the block, which runs any model's code: `reason`,
    and their message in one line. OSError and UnsupportedModelError pass unchanged."""
    try:
        yield
    except (OSError, UnsupportedModelError):  # their messages are clear as they are
        raise
    except Exception as error:
        cause = " ".join(str(error).split())[:MAX_CAUSE_CHARS] or type(error).__name__
        raise UnsupportedModelError(f"{reason}: {cause}") from error
