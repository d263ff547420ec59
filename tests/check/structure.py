"""Counts what makes the house hard to change: `python -m tests.check.structure`, in any checkout.

Each number is one that a redesign is to lower; `deployments/README.md` says what the rooms are.
"""

import argparse
import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.test_architecture import DOCUMENTED, NO_BEGINNINGS

CORE = (
    *("deployments/engine/scheduler/", "deployments/engine/forward/forward.py", "kv/cache.py"),
    *("deployments/engine/runner.py", "deployments/engine/core.py", "deployments/engine/build.py"),
    "deployments/engine/tasks/task.py",
)
PROTOCOLS = ("openai", "anthropic", "llama", "web")
MAX_THIN = 40  # lines of a module that is read together with another one


def measure(root: Path) -> Mapping[str, int]:
    """Returns the numbers of a checkout, each by what it counts."""
    trees = {path.relative_to(root): ast.parse(path.read_text()) for path in _sources(root)}
    own = {path: tree for path, tree in trees.items() if path.parts[0] != "tests"}
    engine = {
        path: tree for path, tree in own.items() if path.parts[:2] == ("deployments", "engine")
    }
    core = [root / path for path in own if str(path).startswith(CORE)]
    fields = _fields(engine[Path("deployments/engine/tasks/task.py")], "Task")
    writers = [path for path, tree in engine.items() if _assigns(tree, fields)]
    scheduler = engine[Path("deployments/engine/scheduler/scheduler.py")]
    return {
        "parameters of the scheduler": _n_parameters(scheduler, "InferenceScheduler"),
        "tests for None in the engine's core": sum(map(_n_none_tests, core)),
        "fields of Task": len(fields),
        "files that assign a task's fields": len(writers),
        "setattr in the engine": sum(_n_calls(tree, "setattr") for tree in engine.values()),
        "getattr in the engine": sum(_n_calls(tree, "getattr") for tree in engine.values()),
        "imports between protocols": sum(map(_n_crossing, own, own.values())),
        f"modules of at most {MAX_THIN} lines": len([*_thin(root, own)]),
        "lines of the demo's training": _n_lines(root, "serve_app/demo/training"),
        "lines of tests": _n_lines(root, "tests"),
        "docstrings without a subject or a verb": sum(map(_n_lost, trees.values())),
        "lines of the longest function": max(map(_longest, own.values())),
    }


def _sources(root: Path) -> Iterator[Path]:
    for top in ("serve_app", "deployments", "kv", "tests"):
        for path in sorted((root / top).rglob("*.py")):
            if "node_modules" not in path.parts:
                yield path


def _n_lines(root: Path, folder: str) -> int:
    paths = (path for path in _sources(root) if path.is_relative_to(root / folder))
    return sum(len(path.read_text().splitlines()) for path in paths)


def _thin(root: Path, own: Mapping[Path, ast.Module]) -> Iterator[Path]:
    for path in own:
        is_counted = path.parts[0] in ("deployments", "kv") and path.name != "__init__.py"
        if is_counted and len((root / path).read_text().splitlines()) <= MAX_THIN:
            yield path


def _class(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)


def _fields(tree: ast.Module, name: str) -> set[str]:
    body = _class(tree, name).body
    return {
        n.target.id for n in body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    }


def _n_parameters(tree: ast.Module, name: str) -> int:
    body = _class(tree, name).body
    made = next(n for n in body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    return len(made.args.args) + len(made.args.kwonlyargs) - 1


def _assigns(tree: ast.Module, fields: set[str]) -> bool:
    """Whether a file assigns an attribute of this name to something that it calls a task."""
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = [part for target in node.targets for part in _parts(target)]
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            is_field = isinstance(target, ast.Attribute) and target.attr in fields
            if is_field and re.search(r"\btasks?\b", ast.unparse(target).rpartition(".")[0]):
                return True
    return False


def _parts(target: ast.expr) -> list[ast.expr]:
    return [*target.elts] if isinstance(target, ast.Tuple) else [target]


def _n_none_tests(path: Path) -> int:
    """Returns how many lines of a file test for None."""
    return sum(
        bool(re.search(r"\bis (not )?None\b", line)) for line in path.read_text().splitlines()
    )


def _n_calls(tree: ast.Module, name: str) -> int:
    calls = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call))
    return sum(isinstance(called, ast.Name) and called.id == name for called in calls)


def _n_crossing(path: Path, tree: ast.Module) -> int:
    if path.parts[0] != "deployments" or path.parts[1] not in PROTOCOLS:
        return 0
    others = {f"deployments.{name}." for name in PROTOCOLS if name != path.parts[1]}
    modules = (n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom))
    return sum(any(f"{module}.".startswith(other) for other in others) for module in modules)


def _n_lost(tree: ast.Module) -> int:
    said = (ast.get_docstring(n) or "" for n in ast.walk(tree) if isinstance(n, DOCUMENTED))
    return sum(bool(re.match(rf"({'|'.join(NO_BEGINNINGS)})\b", text)) for text in said)


def _longest(tree: ast.Module) -> int:
    found = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
    return max(((n.end_lineno or 0) - n.lineno + 1 for n in found), default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, nargs="?", default=Path(__file__).resolve().parents[2])
    for name, number in measure(parser.parse_args().root).items():
        print(f"{number:8} {name}")


if __name__ == "__main__":
    main()
