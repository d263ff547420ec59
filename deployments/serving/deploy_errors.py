"""Reads the reason out of Serve's messages about failed deployments."""

import re

FAILED_STARTS = re.compile(r"failed to start (\d+) times in a row")
EXCEPTION = re.compile(r"^[\w.]+(?:Error|Exception): ")


def last_error(message: str) -> str:
    """The message of the last exception in a traceback."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    raised = [at for at, line in enumerate(lines) if EXCEPTION.match(line)]
    if not raised:
        return lines[-1] if lines else "it did not start"
    return EXCEPTION.sub("", " ".join(lines[raised[-1] :]))


def failed_starts(message: str) -> int:
    """How many replicas in a row could not be started, as far as the message says."""
    found = FAILED_STARTS.search(message)
    return int(found[1]) if found else 0
