"""The rules of the tree, checked: who imports whom, how long a file is, what the trace names."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(
    path
    for top in ("serve_app", "deployments", "kv", "tests")
    for path in (ROOT / top).rglob("*.py")
)
TRACE = (ROOT / "deployments" / "README.md").read_text()
TOP_LEVEL = {
    ".ci",
    ".gitignore",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "cluster.yaml",
    "deployments",
    "kv",
    "pyproject.toml",
    "serve_app",
    "tests",
}
# What each part of the tree must not import, anywhere in it.
FORBIDDEN = {
    "kv": {"deployments", "serve_app", "ray", "pydantic", "starlette", "transformers"},
    "deployments": {"serve_app"},
    "deployments/engine": {"ray", "pydantic", "starlette", "prometheus_client"},
    "deployments/text": {"ray", "pydantic", "starlette", "torch"},
    "deployments/router": {"torch", "transformers"},
    "deployments/ingress": {"torch"},
    "deployments/openai": {"torch", "ray.data"},
    "deployments/anthropic": {"torch"},
    "deployments/llama": {"torch"},
}


def imports(path: Path) -> set[str]:
    """Modules that a file names in its imports, those inside functions too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found.add(node.module or "")
    return found


@pytest.mark.parametrize(("part", "forbidden"), FORBIDDEN.items())
def test_imports_go_one_way(part: str, forbidden: set[str]) -> None:
    for path in (ROOT / part).rglob("*.py"):
        for module in imports(path):
            parents = {module[:i] for i, c in enumerate(module + ".") if c == "."}
            assert not parents & forbidden, f"{path.relative_to(ROOT)} imports {module}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_short_and_says_what_it_owns(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= 400
    assert not text or ast.get_docstring(ast.parse(text)), "no sentence on what the module owns"


def test_the_top_level_is_as_fixed() -> None:
    git = ("git", "-C", str(ROOT), "ls-tree", "--name-only", "HEAD")
    tracked = subprocess.run(git, check=True, capture_output=True, text=True).stdout.split()
    assert set(tracked) == TOP_LEVEL


def test_what_a_router_or_an_ingress_imports_is_free_of_torch() -> None:
    code = "import serve_app, sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, cwd=ROOT)


def traced_names() -> list[str]:
    """The dotted names in the trace of a request."""
    trace = TRACE.partition("## Trace of a request")[2].partition("\n## ")[0]
    return re.findall(r"`((?:serve_app|deployments|kv)\.[\w.]+)`", trace)


def test_the_trace_is_long_enough_to_be_one() -> None:
    assert len(traced_names()) >= 12


@pytest.mark.parametrize("name", traced_names())
def test_every_name_in_the_trace_exists(name: str) -> None:
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: object = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for attribute in parts[end:]:
            found = getattr(found, attribute)
        return
    raise AssertionError(f"there is no {name}")
