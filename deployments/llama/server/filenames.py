"""llama-server's rules for the names of files that clients choose."""

import re

MAX_BYTES = 255
# Control characters, what Windows forbids or reads as a separator, and what looks like one.
FORBIDDEN = re.compile(r'[\x00-\x1f\x7f-\x9f/\\:*?"<>|\uff0e\u2215\u2216\ud800-\udfff\ufffd\ufeff]')


def is_filename(name: str) -> bool:
    """Whether a client may call a file so. A path is none."""
    if not name or FORBIDDEN.search(name) or len(name.encode()) > MAX_BYTES:
        return False
    return ".." not in name and name[0] != " " and name[-1] not in " ."
