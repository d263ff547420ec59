"""How much a test tries in this run, and on which device."""

from typing import TypeVar

T = TypeVar("T")
# tests/conftest.py sets these from `--exhaustive` and `--device`, before it imports a test.
exhaustive = False
device = "cpu"


def tries(check: T, exhaustively: T) -> T:
    """The first one in the check, the second one in the exhaustive run."""
    return exhaustively if exhaustive else check
