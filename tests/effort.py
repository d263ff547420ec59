"""How many examples, seeds or rounds a test tries in this run."""

exhaustive = False  # tests/conftest.py sets it from `--exhaustive`, before it imports a test


def tries(check: int, exhaustively: int) -> int:
    """The first number in the check, the second one in the exhaustive run."""
    return exhaustively if exhaustive else check
