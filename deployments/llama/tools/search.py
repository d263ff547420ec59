"""Tools that search files by name and lines by content."""

from collections.abc import Iterator
from functools import partial
from typing import Annotated, Literal

from pydantic import Field

from deployments.llama.tools.folder import ToolError, read_at
from deployments.llama.tools.patterns import glob, regular_expression
from deployments.llama.tools.tool import Answer, BuiltInTool, Params, ToolContext
from deployments.llama.tools.walk import Entry, SearchBudget, walk

MAX_MATCHES = 100
MAX_SEARCHED_BYTES = 4 << 20  # of a file that is searched
MAX_SEARCHED_CHARACTERS = 10_000  # characters of a line
MAX_LINE_CHARACTERS = 500  # characters shown
MAX_PATTERN_CHARACTERS = 1000

PatternText = Annotated[str, Field(max_length=MAX_PATTERN_CHARACTERS)]


class FileGlobSearch(Params):
    path: Annotated[str, Field(description="Folder to search in")]
    include: Annotated[PatternText, Field(description="Glob, such as **/*.py")] = "**"
    exclude: Annotated[PatternText, Field(description="Glob of what to leave out")] | None = None
    type: Literal["file", "dir", "all"] = "file"
    max_depth: Annotated[int, Field(ge=0, description="Levels of folders; 0 for all")] = 0
    limit: Annotated[int, Field(ge=1, le=MAX_MATCHES)] = MAX_MATCHES


class GrepSearch(Params):
    path: Annotated[str, Field(description="File or folder to search in")]
    pattern: Annotated[PatternText, Field(min_length=1, description="Regular expression")]
    include: Annotated[PatternText, Field(description="Glob of the files to search")] = "**"
    exclude: Annotated[PatternText, Field(description="Glob of the files to leave out")] | None = (
        None
    )
    return_line_numbers: bool = True
    literal: Annotated[bool, Field(description="The pattern is plain text")] = False
    ignore_case: bool = False
    context_lines: Annotated[int, Field(ge=0, le=20)] = 0


def file_glob_search(params: FileGlobSearch, context: ToolContext) -> Answer:
    budget = SearchBudget()
    matches = Globs(params.include, params.exclude, budget)
    kinds = {"file": (False,), "dir": (True,), "all": (False, True)}[params.type]
    found: list[Entry] = []
    truncated = False
    for entry in walk(context.folder, context.path(params.path), params.max_depth, budget):
        if entry.is_directory in kinds and matches(entry.path_text):
            truncated = len(found) == params.limit
            if truncated:
                break
            found.append(entry)
    return {
        "plain_text_response": "\n".join(entry.path_text for entry in found),
        "entries": [
            {"path": entry.path_text, "type": "dir" if entry.is_directory else "file"}
            for entry in found
        ],
        "base": params.path,
        "truncated": truncated,
    }


def grep_search(params: GrepSearch, context: ToolContext) -> Answer:
    budget = SearchBudget()
    finder = Finder(params, budget)
    shown: list[str] = []
    for name, content in _contents(params, context, budget):
        shown += finder.lines(name, content)
        if finder.found >= MAX_MATCHES:
            shown.append(f"[only the first {MAX_MATCHES} matches]")
            break
    return {"plain_text_response": "\n".join(shown), "matches": finder.found}


def _contents(
    params: GrepSearch, context: ToolContext, budget: SearchBudget
) -> Iterator[tuple[str, bytes]]:
    path = context.path(params.path)
    if not context.folder.is_directory(path):
        yield params.path, context.folder.read(path, MAX_SEARCHED_BYTES)
        return
    matches = Globs(params.include, params.exclude, budget)
    for entry in walk(context.folder, path, 0, budget):
        if not entry.is_directory and matches(entry.path_text):
            try:
                yield (
                    entry.path_text,
                    read_at(entry.parent, entry.path[-1], MAX_SEARCHED_BYTES),
                )
            except (OSError, ToolError):
                continue  # removed, not readable, or too large


class Finder:
    """Finds the lines of a file that match, and counts them."""

    def __init__(self, params: GrepSearch, budget: SearchBudget) -> None:
        self._params = params
        pattern = regular_expression(
            params.pattern, literal=params.literal, ignore_case=params.ignore_case
        )
        self._finds = partial(budget.finds, pattern)
        self.found = 0

    def lines(self, name: str, content: bytes) -> list[str]:
        """The matching lines with their context, as grep shows them; none of binary files."""
        if b"\0" in content:
            return []
        lines = content.decode("utf-8", "replace").split("\n")
        hits = [
            index for index, line in enumerate(lines) if self._finds(line[:MAX_SEARCHED_CHARACTERS])
        ]
        hits = hits[: MAX_MATCHES - self.found]
        self.found += len(hits)
        around = self._params.context_lines
        shown = sorted({near for hit in hits for near in range(hit - around, hit + around + 1)})
        matching = set(hits)
        return [
            self._line_text(name, index, lines[index], index in matching)
            for index in shown
            if 0 <= index < len(lines)
        ]

    def _line_text(self, name: str, index: int, line: str, is_match: bool) -> str:
        mark = ":" if is_match else "-"
        number = f"{index + 1}{mark}" if self._params.return_line_numbers else ""
        return f"{name}{mark}{number}{line[:MAX_LINE_CHARACTERS]}"


class Globs:
    """Whether a path matches the requested globs."""

    def __init__(self, include: str, exclude: str | None, budget: SearchBudget) -> None:
        self._included = partial(budget.finds, glob(include))
        self._excluded = None if exclude is None else partial(budget.finds, glob(exclude))

    def __call__(self, path: str) -> bool:
        if self._excluded is not None and self._excluded(path):
            return False
        return self._included(path)


FILE_GLOB_SEARCH = BuiltInTool(
    name="file_glob_search",
    display_name="Search files",
    description="Find files or folders by a glob",
    params=FileGlobSearch,
    call=file_glob_search,
)
GREP_SEARCH = BuiltInTool(
    name="grep_search",
    display_name="Search in files",
    description="Find lines of text files that match a regular expression; of long lines only the "
    f"first {MAX_SEARCHED_CHARACTERS} characters are searched",
    params=GrepSearch,
    call=grep_search,
)
