"""Walks a directory of the folder in order, bounded in entries and in time."""

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass

from deployments.llama.tools.folder import Folder, Path, ToolError, as_tool_errors, path_text
from deployments.llama.tools.patterns import Pattern

JUNK = frozenset(
    {".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".mypy_cache", ".ruff_cache"}
)
MAX_ENTRIES = 100_000
MAX_SEARCH_S = 15.0


class SearchBudget:
    """The entries and the time that a search may still use."""

    def __init__(self) -> None:
        self._end = time.monotonic() + MAX_SEARCH_S
        self._entries = 0

    def spend(self) -> None:
        """Counts one entry. Raises ToolError at the limit of entries or time."""
        self._entries += 1
        if self._entries > MAX_ENTRIES:
            raise ToolError(f"more than {MAX_ENTRIES} entries: search in a smaller folder")
        self.check()

    def check(self) -> None:
        if self.left() <= 0:
            raise ToolError(f"the search took more than {MAX_SEARCH_S:g} seconds")

    def left(self) -> float:
        return self._end - time.monotonic()

    def finds(self, pattern: Pattern, text: str) -> bool:
        """Searches with a timeout: some patterns never end."""
        self.check()
        try:
            found = pattern.search(text, timeout=max(self.left(), 0.001))
        except TimeoutError:
            raise ToolError("the search took too long") from None
        return found is not None


@dataclass(frozen=True, slots=True)
class Entry:
    """`path` is relative to the start of the walk; `parent` is open until the next entry."""

    path: Path
    is_directory: bool
    parent: int

    @property
    def path_text(self) -> str:
        return path_text(self.path)


def walk(folder: Folder, base: Path, depth: int, budget: SearchBudget) -> Iterator[Entry]:
    """Yields files and directories, no links. `depth` 0 is all levels, 1 the first."""
    with folder.directory(base) as start:
        yield from _walk(start, (), depth, budget)


def _walk(directory: int, path: Path, depth: int, budget: SearchBudget) -> Iterator[Entry]:
    with as_tool_errors(path):
        names = sorted(os.listdir(directory))
    for name in names:
        budget.spend()
        kind = _kind(directory, name)
        if kind is None or name in JUNK:
            continue
        entry = Entry((*path, name), kind, directory)
        yield entry
        if kind and depth != 1:
            yield from _below(entry, depth - 1 if depth else 0, budget)


def _below(entry: Entry, depth: int, budget: SearchBudget) -> Iterator[Entry]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        inner = os.open(entry.path[-1], flags, dir_fd=entry.parent)
    except OSError:
        return  # removed, or not readable
    try:
        yield from _walk(inner, entry.path, depth, budget)
    finally:
        os.close(inner)


def _kind(directory: int, name: str) -> bool | None:
    """Whether it is a directory; None if it is neither a directory nor a regular file."""
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except OSError:
        return None
    return True if stat.S_ISDIR(mode) else False if stat.S_ISREG(mode) else None
