"""How many examples, seeds or rounds a test tries in this run."""

from typing import TypeVar

T = TypeVar("T")
exhaustive = False  # tests/conftest.py sets it from `--exhaustive`, before it imports a test


def tries(check: T, exhaustively: T) -> T:
    """The first one in the check, the second one in the exhaustive run."""
    return exhaustively if exhaustive else check
