"""Erases the prefixes or the saved slots of an owner, or lists owners.

    python -m kv.tiers FOLDER [OWNER]

OWNER is "name:" and the name of an API key, or "" where no keys are set.
"""

import sys
from collections import Counter
from pathlib import Path

from kv.tiers.folder import bytes_by_owner, erase_owner
from kv.tiers.slot_folder import erase_slots, slot_bytes_by_owner


def main(arguments: list[str]) -> str:
    """Returns what was done. Raises SystemExit for wrong arguments, OSError as the system does."""
    path = Path(arguments[0] if arguments else "")
    if len(arguments) == 2:
        n = erase_owner(path, arguments[1]) + erase_slots(path, arguments[1])
        return f"{n} files removed"
    if len(arguments) == 1:
        found: Counter[str] = bytes_by_owner(path) + slot_bytes_by_owner(path)
        return "\n".join(f"{tag} {n_bytes}" for tag, n_bytes in found.most_common())
    raise SystemExit("python -m kv.tiers FOLDER [OWNER]")


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]))
    except OSError as error:
        raise SystemExit(str(error)) from error
