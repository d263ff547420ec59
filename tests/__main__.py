"""The one check, for people and for CI: `python -m tests`. Arguments go to pytest."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHECKS = (
    ("ruff", "format", "--check", "."),
    ("ruff", "check", "."),
    ("mypy",),
    ("pytest", "--instafail"),  # what fails is told at once
)


def main() -> int:
    for check in CHECKS:
        arguments = sys.argv[1:] if check[0] == "pytest" else ()
        print("==", *check, *arguments, flush=True)
        code = subprocess.run([sys.executable, "-m", *check, *arguments], cwd=ROOT).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
