"""The page's build, as pip runs it: when it does, what is left where it can't, what comes of it."""

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WEB = ROOT / "serve_app" / "web"
DIST = WEB / "dist"
PACKAGES = {"name": "page", "version": "0.0.0", "lockfileVersion": 3, "packages": {"": {}}}
FINISH = "require('fs').cpSync('src', process.env.MANTA_WEB_OUT, { recursive: true })"
UNREACHABLE = "registry=http://127.0.0.1:9/\n"  # the port to discard at, where nothing listens
MAX_FIRST_LOAD = 250 << 10  # bytes, packed
MAX_LAZY = 400 << 10
LICENCES = {"MIT", "ISC", "BSD-3-Clause", "Apache-2.0", "Unlicense"}  # of packages in the page
# Their package.json says none, or a choice.
READ_BY_HAND = {
    "dompurify": "Apache-2.0",
    "khroma": "MIT",
    "runed": "MIT",
    "svelte-toolbelt": "MIT",
}
NOT_SHIPPED = {
    *("@sveltejs/adapter-static", "@sveltejs/vite-plugin-svelte", "@tailwindcss/vite"),
    *("typescript", "vite"),
    *("elkjs", "@napi-rs/canvas"),  # stubs are in their place
}
needs_page = pytest.mark.skipif(
    not DIST.is_dir() and "CI" not in os.environ, reason="the page is not built"
)


@pytest.fixture
def web(tmp_path: Path) -> Path:
    """A small page with the build backend beside it, in the place of the real one."""
    folder = tmp_path / "serve_app" / "web"
    (folder / "src").mkdir(parents=True)
    shutil.copy(WEB / "build_backend.py", folder)
    (folder / "src" / "index.html").write_text("first")
    build = {"name": "page", "version": "0.0.0", "scripts": {"build": f'node -e "{FINISH}"'}}
    (folder / "package.json").write_text(json.dumps(build))
    (folder / "package-lock.json").write_text(json.dumps(PACKAGES))
    return folder


def prepare(web: Path, mode: str | None = None) -> "subprocess.CompletedProcess[str]":
    """Runs the step that stands before each wheel and each editable install."""
    env = {name: value for name, value in os.environ.items() if name != "MANTA_WEB"}
    env |= {"npm_config_cache": str(web / "node_modules" / "cache")}
    env |= {} if mode is None else {"MANTA_WEB": mode}
    code = "import build_backend as b; b.prepare(); print('wanted:', b.is_wanted())"
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, cwd=web, env=env, capture_output=True, text=True)


def served(web: Path) -> str:
    return (web / "dist" / "index.html").read_text()


def needs_a_package(web: Path) -> None:
    """Makes the page need a package from a registry that can't be reached."""
    build = json.loads((web / "package.json").read_text())
    (web / "package.json").write_text(json.dumps({**build, "dependencies": {"left-pad": "1.3.0"}}))
    package = {"version": "1.3.0", "integrity": "sha512-" + "A" * 86 + "=="}
    packages = {
        "": {"dependencies": {"left-pad": "1.3.0"}},
        "node_modules/left-pad": package,
    }
    (web / "package-lock.json").write_text(json.dumps({**PACKAGES, "packages": packages}))
    (web / ".npmrc").write_text(UNREACHABLE)


def test_the_page_is_built_when_its_sources_change_and_only_then(web: Path) -> None:
    done = prepare(web)
    assert (done.returncode, served(web)) == (0, "first"), done.stderr
    (web / "dist" / "index.html").write_text("not built again")
    (web / "src" / "some.test.ts").write_text("no part of the page")
    assert prepare(web).stdout == "wanted: False\n"  # so pip is not asked for Node either
    assert served(web) == "not built again"
    (web / "src" / "index.html").write_text("second")
    prepare(web)
    assert served(web) == "second"
    left = {path.name for path in web.iterdir()} - {"__pycache__"}
    assert left == {"src", "dist", "build_backend.py", "package.json", "package-lock.json"}


def test_without_a_registry_the_older_page_stays_and_the_server_learns_why(web: Path) -> None:
    needs_a_package(web)
    done = prepare(web)
    assert (done.returncode, (web / "dist").exists()) == (0, False)
    assert "THE WEB PAGE IS MISSING" in done.stderr
    assert "`npm ci` failed" in (web / "build_failure.txt").read_text()
    (web / "dist").mkdir()
    (web / "dist" / "index.html").write_text("older")
    done = prepare(web)
    assert (done.returncode, served(web)) == (0, "older")
    assert "THE WEB PAGE IS AN OLDER ONE" in done.stderr


def test_a_page_that_has_to_be_there_fails_the_build(web: Path) -> None:
    (web / ".npmrc").write_text(UNREACHABLE)
    build = {"name": "page", "version": "0.0.0", "scripts": {"build": "exit 3"}}
    (web / "package.json").write_text(json.dumps(build))
    done = prepare(web, "1")
    assert done.returncode != 0
    assert "`npm run` failed" in done.stderr
    assert not (web / "dist").exists()


def test_no_page_is_built_for_who_wants_none(web: Path) -> None:
    done = prepare(web, "0")
    assert (done.returncode, done.stdout) == (0, "wanted: False\n")
    assert not (web / "dist").exists()


def test_a_wheel_has_the_page_and_no_source_of_it() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        read = tomllib.load(file)
    assert read["build-system"]["backend-path"] == ["serve_app/web"]
    tool = read["tool"]["setuptools"]
    assert "web/dist/**" in tool["package-data"]["serve_app"]
    assert "serve_app.web*" in tool["packages"]["find"]["exclude"]


@needs_page
def test_the_page_has_no_inline_script_and_no_address_of_its_own_but_relative_ones() -> None:
    page = (DIST / "index.html").read_text()
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", page, re.DOTALL)
    assert scripts
    assert all("src=" in attributes and not text.strip() for attributes, text in scripts)
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(address.startswith("./") for address in addresses), addresses
    assert not re.search(r"\son\w+=", page)
    for name in addresses:
        assert (DIST / name).is_file()


@needs_page
def test_every_file_that_gains_by_it_has_a_packed_one_beside_it() -> None:
    for path in DIST.rglob("*"):
        if path.suffix in {".js", ".css", ".html", ".svg"} and path.stat().st_size > 1 << 10:
            packed = path.with_name(path.name + ".gz")
            assert gzip.decompress(packed.read_bytes()) == path.read_bytes()


@needs_page
def test_the_page_is_small() -> None:
    first = first_load()
    assert sum(map(packed_size, first)) <= MAX_FIRST_LOAD
    for path in DIST.rglob("*.*js"):
        if path not in first:
            assert packed_size(path) <= MAX_LAZY, path


def first_load() -> set[Path]:
    """Returns the files fetched before the page runs: those it names, and those they import."""
    page = (DIST / "index.html").read_text()
    todo = {(DIST / address).resolve() for address in re.findall(r'"(\./_app/[^"]+)"', page)}
    # The layout and the first screen, which the router imports at once.
    todo |= {*DIST.glob("_app/immutable/nodes/[02].*.js")}
    todo |= {*DIST.glob("_app/immutable/assets/[02].*.css")}
    found: set[Path] = set()
    while todo:
        path = todo.pop()
        found.add(path)
        if path.suffix == ".js":
            text = path.read_text()
            # `import(...)` counts in the script that starts all; elsewhere it comes later.
            starts = path.name.startswith("boot.")
            pattern = r'import\("([^"]+)"\)' if starts else r'(?:from|import)\s*"([^"]+)"'
            imported = {(path.parent / address).resolve() for address in re.findall(pattern, text)}
            todo |= {script for script in imported if script.is_file()} - found
    return found


def packed_size(path: Path) -> int:
    return len(gzip.compress(path.read_bytes(), 9))


def test_what_is_shipped_has_a_licence_that_lets_us() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())["packages"]
    todo = {(name, "") for name in lock[""]["dependencies"]}
    found: dict[str, str] = {}
    while todo:
        name, above = todo.pop()
        path = next(candidate for candidate in paths_of(name, above) if candidate in lock)
        if name not in NOT_SHIPPED and path not in found:
            found[path] = READ_BY_HAND.get(name) or lock[path].get("license", "none said")
            todo |= {(dependency, path) for dependency in lock[path].get("dependencies", {})}
    assert len(found) > 10
    assert set(found.values()) <= LICENCES, found


def paths_of(name: str, above: str) -> list[str]:
    """Returns where npm looks for a package that another one needs, the nearest first."""
    parts = above.split("/node_modules/")
    inner = ["/node_modules/".join(parts[:end]) for end in range(len(parts), 0, -1) if above]
    return [*(f"{folder}/node_modules/{name}" for folder in inner), f"node_modules/{name}"]
