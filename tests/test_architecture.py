"""The rules of the tree, checked: who imports whom, how large a room is, what the trace names."""

import ast
import importlib
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(
    path
    for top in ("serve_app", "deployments", "kv", "tests")
    for path in (ROOT / top).rglob("*.py")
    if "node_modules" not in path.parts
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
MAX_LINES = 399  # of a file
MAX_MODULES = 20  # of a folder
TABLES = ROOT / "tests" / "text" / "dialects" / "tables"  # data: transcripts, a file a family
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# A docstring that begins so has no subject, or its verb comes late.
NO_BEGINNINGS = {
    *("Also", "As", "By", "For", "From", "In", "Of", "That", "Those", "To"),
    *("What", "Where", "With", "Without"),
}
FOLDERS = sorted({path.parent for path in SOURCES} - {TABLES})
# What each part of the tree must not import, anywhere in it.
FORBIDDEN = {
    "serve_app/applications": {"torch"},
    "kv": {"deployments", "serve_app", "ray", "pydantic", "starlette", "transformers"},
    "deployments": {"serve_app"},
    "deployments/contract": {"ray", "pydantic", "starlette", "torch", "transformers"},
    "deployments/engine": {"ray", "pydantic", "starlette", "prometheus_client"},
    "deployments/media": {"ray", "pydantic", "starlette", "torch", "transformers"},
    "deployments/text": {"ray", "pydantic", "starlette", "torch"},
    "deployments/sandbox": {"ray", "pydantic", "starlette", "torch", "transformers"},
    "deployments/router": {"torch", "transformers"},
    "deployments/ingress": {"torch"},
    "deployments/openai": {"torch", "ray.data"},
    "deployments/anthropic": {"torch"},
    "deployments/llama": {"torch"},
    "deployments/store": {"torch", "ray", "starlette"},
    "deployments/web": {"torch"},
}
# The rooms from above to below: a room imports those below its own line, and none beside it.
ORDER: Mapping[str, list[set[str]]] = {
    ".": [{"serve_app"}, {"deployments"}, {"kv"}],
    "deployments": [
        {"web", "llama", "openai", "anthropic"},  # side by side: `serve_app` composes them
        {"ingress"},
        {"router"},
        {"model"},
        {"engine"},
        {"text", "store"},
        {"media"},
        {"sandbox"},
        {"telemetry"},
        {"contract", "serving"},
    ],
    "deployments/engine": [
        {"scheduler"},
        {"parallel"},
        {"needs"},
        {"loading"},
        {"outputs", "media"},
        {"forward"},
        {"attention", "sampling"},
        {"tasks", "kernels"},
        {"quantized"},
    ],
}
# Where each public function says its shapes, units and errors.
INTERFACES = (
    "kv",
    "deployments/contract",
    "deployments/engine/engine.py",
    "deployments/engine/core.py",
    "deployments/engine/runner.py",
    "deployments/engine/attention/interface.py",
    "deployments/engine/forward/inputs.py",
    "deployments/engine/sampling/strategy.py",
    "deployments/engine/tasks/batch.py",
)


@cache
def imports(path: Path) -> frozenset[str]:
    """Returns the imports of a file as `module.name`, in functions and under TYPE_CHECKING too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(found)


def parents(module: str) -> set[str]:
    """`a.b.c` -> `a`, `a.b`, `a.b.c`."""
    return {module[:i] for i, c in enumerate(module + ".") if c == "."}


@cache
def arrows() -> frozenset[tuple[Path, Path]]:
    """Which file imports which one, relative to the root; tests are left out."""
    own = [path.relative_to(ROOT) for path in SOURCES if not path.is_relative_to(ROOT / "tests")]
    files = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in own}
    found: set[tuple[Path, Path]] = set()
    for path in own:
        for name in imports(ROOT / path):
            imported = files.get(name) or files.get(name.rpartition(".")[0])
            if imported and imported != path:
                found.add((path, imported))
    return frozenset(found)


def circle(arrows: Mapping[str, set[str]]) -> list[str]:
    """Some circle of a graph, its first entry again at its end; empty if there is none."""
    done: set[str] = set()

    def follow(entry: str, path: list[str]) -> list[str]:
        if entry in path:
            return [*path[path.index(entry) :], entry]
        if entry in done:
            return []
        for other in sorted(arrows.get(entry, ())):
            if found := follow(other, [*path, entry]):
                return found
        done.add(entry)
        return []

    return next((found for entry in sorted(arrows) if (found := follow(entry, []))), [])


def entries(folder: Path) -> dict[str, set[str]]:
    """Which entry of a folder, a file or a folder in it, imports which other one."""
    found: dict[str, set[str]] = defaultdict(set)
    for importer, imported in arrows():
        if importer.is_relative_to(folder) and imported.is_relative_to(folder):
            above = importer.relative_to(folder).parts[0]
            below = imported.relative_to(folder).parts[0]
            if above != below:
                found[above].add(below)
    return found


def folders() -> list[Path]:
    own = {parent for pair in arrows() for path in pair for parent in path.parents}
    return sorted(own)


@pytest.mark.parametrize(("part", "forbidden"), FORBIDDEN.items())
def test_what_a_part_must_not_import_it_does_not(part: str, forbidden: set[str]) -> None:
    for path in (ROOT / part).rglob("*.py"):
        for module in imports(path):
            assert not parents(module) & forbidden, f"{path.relative_to(ROOT)} imports {module}"


def test_files_import_each_other_in_no_circle() -> None:
    files: dict[str, set[str]] = defaultdict(set)
    for importer, imported in arrows():
        files[str(importer)].add(str(imported))
    assert not circle(files)


@pytest.mark.parametrize("folder", folders(), ids=str)
def test_the_entries_of_a_folder_import_each_other_in_no_circle(folder: Path) -> None:
    assert not circle(entries(folder))


@pytest.mark.parametrize("folder", ORDER)
def test_arrows_between_rooms_run_down(folder: str) -> None:
    lines = {name: line for line, names in enumerate(ORDER[folder]) for name in names}
    rooms = {path.name for path in (ROOT / folder).iterdir() if (path / "__init__.py").exists()}
    assert lines.keys() == rooms - {"tests"}
    for above, imported in entries(Path(folder)).items():
        for below in imported:
            if above in lines and below in lines:
                assert lines[above] < lines[below], f"{above} imports {below}"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_folder_has_few_modules(folder: Path) -> None:
    modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
    assert len(modules) <= MAX_MODULES


def complaints(path: Path) -> Iterator[str]:
    """Yields what a reader misses in a file, and what makes its sentences hard to read."""
    text = path.read_text()
    if len(text.splitlines()) > MAX_LINES:
        yield "is too long"
    tree = ast.parse(text)
    if text and not ast.get_docstring(tree):
        yield "has no sentence on what the module owns"
    for node in ast.walk(tree):
        if isinstance(node, DOCUMENTED):
            found = re.match(r"\w+", ast.get_docstring(node) or "")
            if found and found[0] in NO_BEGINNINGS:
                yield f"has a docstring without a subject or a verb: {ast.get_docstring(node)}"
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            names = {part.id for part in ast.walk(node.target) if isinstance(part, ast.Name)}
            if "one" in names:
                yield f"has a loop over `one`, which says nothing: {ast.unparse(node.iter)}"


def test_every_file_is_short_and_easy_to_read() -> None:
    found = [f"{path.relative_to(ROOT)} {said}" for path in SOURCES for said in complaints(path)]
    assert not found


def test_the_engine_keeps_nothing_on_modules_of_transformers() -> None:
    """A model that is run row by row keeps its own state there, which each row brings along."""
    engine = [path for path in SOURCES if path.is_relative_to(ROOT / "deployments" / "engine")]
    found = [path.name for path in engine if re.search(r"\b(set|del)attr\(", path.read_text())]
    assert found == ["by_rows.py"]


def test_needs_know_neither_the_scheduler_nor_each_other() -> None:
    needs = ROOT / "deployments" / "engine" / "needs"
    own = {
        path: path.relative_to(needs).parts[0].removesuffix(".py") for path in needs.rglob("*.py")
    }
    kinds = {own[path] for path in own if re.search(r"\((Row)?Need\):", path.read_text())}
    kinds -= {"need"}
    assert kinds == {
        "adapters",
        "draft_head",
        "grammar",
        "kv_tier",
        "media",
        "slots",
        "speech",
        "states",
    }
    for path in own:
        above = {"scheduler", "runner", "core", "build"}
        forbidden = {f"deployments.engine.{name}" for name in above}
        forbidden |= {f"deployments.engine.needs.{kind}" for kind in kinds - {own[path]}}
        for module in imports(path):
            assert not parents(module) & forbidden, f"{path.name} imports {module}"
    for path in (ROOT / "deployments" / "engine" / "scheduler").glob("*.py"):
        for module in imports(path):
            known = parents(module) & {f"deployments.engine.needs.{kind}" for kind in kinds}
            assert not known, f"{path.name} imports {module}"


def test_no_two_classes_have_one_name() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in SOURCES:
        if not path.is_relative_to(ROOT / "tests"):
            for name in re.findall(r"^class (\w+)", path.read_text(), re.MULTILINE):
                places[name].append(str(path.relative_to(ROOT)))
    assert not {name: found for name, found in places.items() if len(found) > 1}


def public_functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions of a module, and methods of its public classes, that others may call."""
    for node in ast.parse(path.read_text()).body:
        public = isinstance(node, ast.ClassDef) and not node.name.startswith("_")
        for statement in [node, *(node.body if public and isinstance(node, ast.ClassDef) else ())]:
            if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
                marks = {ast.unparse(mark) for mark in statement.decorator_list}
                if not statement.name.startswith("_") and not marks & {"overload", "property"}:
                    yield statement


@pytest.mark.parametrize("interface", INTERFACES)
def test_every_public_function_of_an_interface_has_a_docstring(interface: str) -> None:
    root = ROOT / interface
    for path in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
        missing = [
            function.name for function in public_functions(path) if not ast.get_docstring(function)
        ]
        assert not missing, f"{path.relative_to(ROOT)}: {missing}"


def test_the_top_level_is_as_fixed() -> None:
    git = ("git", "-C", str(ROOT), "ls-tree", "--name-only", "HEAD")
    tracked = subprocess.run(git, check=True, capture_output=True, text=True).stdout.split()
    assert set(tracked) == TOP_LEVEL


def test_what_a_router_or_an_ingress_imports_is_free_of_torch() -> None:
    names = ("anthropic", "openai", "router", "web")
    modules = ", ".join(f"deployments.{name}.deployment" for name in names)
    code = f"import serve_app.applications.llama, {modules}, sys; sys.exit('torch' in sys.modules)"
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
