"""Reads the reason out of Serve's messages about failed deployments."""

import re

EXCEPTION = re.compile(r"^[\w.]+(?:Error|Exception): ")


def last_error(message: str) -> str:
    """The message of the last exception in a traceback."""
    lines = [line.strip() for line in message.strip().splitlines() if line.strip()]
    raised = [at for at, line in enumerate(lines) if EXCEPTION.match(line)]
    if not raised:
        return lines[-1] if lines else "it did not start"
    return EXCEPTION.sub("", " ".join(lines[raised[-1] :]))
