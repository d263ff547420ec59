"""Searches by name and by content: their matches, and their limits."""

import asyncio
import os
import threading
from pathlib import Path
from queue import Queue

import httpx
import pytest

from deployments.llama.tools import routes, search_process, walk
from deployments.llama.tools.routes import MAX_CLIENT_CALLS
from deployments.llama.tools.tool import Answer, ToolContext
from tests.llama.tools import serving
from tests.llama.tools.serving import searched

GREP = {"tool": "grep_search"}


def failed(folder: Path, tool: str, **params: object) -> str:
    [(name, message)] = searched(folder, tool, **params).items()
    assert name == "error"
    return str(message)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    for name in ("a.py", "b.txt", "src/c.py", "src/deep/d.py", ".git/e.py", "node_modules/f.py"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"first\nsecond of {name}\nthird\n")
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "s.py").write_text("second secret")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "src" / "link.py").symlink_to(tmp_path / "secret" / "s.py")
    (folder / "raw.py").write_bytes(b"second\0")
    return folder


def found(folder: Path, **params: object) -> list[str]:
    answer = searched(folder, "file_glob_search", **{"path": ".", **params})
    names = [entry["path"] for entry in answer["entries"]]
    assert answer["plain_text_response"] == "\n".join(names)
    return names


@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({}, ["a.py", "b.txt", "raw.py", "src/c.py", "src/deep/d.py"]),
        ({"include": "*.txt"}, ["b.txt"]),
        ({"include": "d.*"}, ["src/deep/d.py"]),
        ({"include": "src/*.py"}, ["src/c.py"]),
        ({"include": "src/**/*.py"}, ["src/c.py", "src/deep/d.py"]),
        ({"include": "?.py"}, ["a.py", "src/c.py", "src/deep/d.py"]),
        ({"include": "*.py", "exclude": "src/**"}, ["a.py", "raw.py"]),
        ({"max_depth": 1}, ["a.py", "b.txt", "raw.py"]),
        ({"max_depth": 2, "include": "*.py"}, ["a.py", "raw.py", "src/c.py"]),
        ({"path": "src"}, ["c.py", "deep/d.py"]),
        ({"type": "dir"}, ["src", "src/deep"]),
        ({"type": "all", "path": "src"}, ["c.py", "deep", "deep/d.py"]),
        ({"limit": 1}, ["a.py"]),
        ({"include": "[ab].py"}, []),
    ],
)
def test_files_are_found_by_globs(
    folder: Path, params: dict[str, object], names: list[str]
) -> None:
    assert found(folder, **params) == names


def test_a_search_says_that_matches_were_left_out(folder: Path) -> None:
    assert searched(folder, "file_glob_search", path=".", limit=1)["truncated"] is True
    assert searched(folder, "file_glob_search", path=".", limit=5)["truncated"] is False


def test_a_file_is_no_folder(folder: Path) -> None:
    failed(folder, "file_glob_search", path="a.py")
    failed(folder, "file_glob_search", path="none")
    failed(folder, "file_glob_search", path="link")


def lines(folder: Path, **params: object) -> list[str]:
    answer = searched(folder, "grep_search", **{"path": ".", "pattern": "second", **params})
    return str(answer["plain_text_response"]).splitlines()


@pytest.mark.parametrize(
    ("params", "shown"),
    [
        (
            {"include": "*.py"},
            [
                "a.py:2:second of a.py",
                "src/c.py:2:second of src/c.py",
                "src/deep/d.py:2:second of src/deep/d.py",
            ],
        ),
        ({"path": "b.txt"}, ["b.txt:2:second of b.txt"]),
        ({"path": "b.txt", "return_line_numbers": False}, ["b.txt:second of b.txt"]),
        (
            {"path": "b.txt", "context_lines": 5},
            ["b.txt-1-first", "b.txt:2:second of b.txt", "b.txt-3-third", "b.txt-4-"],
        ),
        ({"path": "b.txt", "pattern": "^(first|third)$"}, ["b.txt:1:first", "b.txt:3:third"]),
        ({"path": "b.txt", "pattern": "f.rst", "literal": True}, []),
        ({"path": "b.txt", "pattern": "FIRST"}, []),
        ({"path": "b.txt", "pattern": "FIRST", "ignore_case": True}, ["b.txt:1:first"]),
        ({"exclude": "**/*.py"}, ["b.txt:2:second of b.txt"]),
    ],
)
def test_lines_are_found_by_what_they_hold(
    folder: Path, params: dict[str, object], shown: list[str]
) -> None:
    assert lines(folder, **params) == shown


def test_a_name_that_is_no_utf8_is_found_and_written_as_far_as_it_is(folder: Path) -> None:
    directory = os.path.join(os.fsencode(folder), b"sub\xff")
    os.mkdir(directory)
    with open(os.path.join(directory, b"\xfe.py"), "wb") as file:
        file.write(b"here")
    name = "sub\ufffd/\ufffd.py"
    assert found(folder, include="sub*/*.py") == [name]
    assert found(folder, include="sub*", type="dir") == ["sub\ufffd"]
    assert lines(folder, pattern="here") == [f"{name}:1:here"]


def test_so_many_lines_are_enough(folder: Path) -> None:
    (folder / "many").write_text("second\n" * 300)
    answer = searched(folder, "grep_search", path="many", pattern="second")
    assert answer["matches"] == 100
    assert answer["plain_text_response"].endswith("[only the first 100 matches]")


@pytest.mark.parametrize("pattern", ["(", "(?R)?a", "(?>a)", "[", "(" * 900])
def test_an_invalid_pattern_is_an_error(folder: Path, pattern: str) -> None:
    assert "regular expression" in failed(folder, "grep_search", path=".", pattern=pattern)


@pytest.mark.parametrize(
    "pattern", ["((a{1000}){1000}){1000}", "(a{60000}){60000}", "a{1001}", "a{99999999999999}"]
)
def test_a_pattern_that_takes_all_memory_is_not_tried(folder: Path, pattern: str) -> None:
    assert "counts" in failed(folder, "grep_search", path=".", pattern=pattern)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"f\(\) {$", "f() {"),
        (r"\{e<=9}", "{e<=9}"),
        ("x{e}", "x{e}"),
        (r"\\{e<=1}", r"\{e<=1}"),
        (r"[{]\p{Lu}", "{A"),
        ("a{2,3}b", "aab"),
        ("(?i)HELLO(?= w)", "hello world"),
        ("(?P<x>a)(?:b)", "ab"),
    ],
)
def test_braces_count_or_stand_for_themselves(folder: Path, pattern: str, line: str) -> None:
    (folder / "one").write_text(f"nothing\n{line}\n")
    assert lines(folder, path="one", pattern=pattern) == [f"one:2:{line}"]


def test_a_pattern_that_takes_forever_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "MAX_SEARCH_S", 0.05)
    (folder / "long").write_text("a" * 200 + "b")
    assert "took" in failed(folder, "grep_search", path="long", pattern="(a|aa)+$")


def test_a_glob_of_many_stars_comes_to_an_end(folder: Path) -> None:
    (folder / ("a" * 200 + "b")).write_text("")
    assert found(folder, include="*a" * 30 + "*b?") == []


def test_a_folder_with_too_much_in_it_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk, "MAX_ENTRIES", 3)
    assert "smaller folder" in failed(folder, "file_glob_search", path=".")


@pytest.mark.parametrize(
    ("tool", "params"),
    [("file_glob_search", {"path": "."}), ("grep_search", {"path": ".", "pattern": "second"})],
)
def test_a_process_of_its_own_answers_the_same(
    folder: Path, tool: str, params: dict[str, object]
) -> None:
    assert serving.called(folder, tool, **params) == searched(folder, tool, **params)
    missing = {**params, "path": "none"}
    assert serving.failed(folder, tool, **missing) == failed(folder, tool, **missing)


def test_a_pattern_that_minds_no_timeout_is_ended_and_told_of(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_process, "MAX_SEARCH_S", 1.0)
    (folder / "long").write_text("a" * 9000)
    pattern = "(?:a?){500}a{2}b"  # some 30 s
    message = serving.failed(folder, "grep_search", path="long", pattern=pattern)
    assert message == "the search took more than 1 seconds"


async def test_one_client_leaves_a_slot_to_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients are told apart by their addresses."""
    may_end = threading.Event()
    running: Queue[str] = Queue()

    def wait(name: str, params: dict[str, object], context: ToolContext) -> Answer:
        running.put(str(params["pattern"]))
        may_end.wait()
        return {}

    async def ask(client: str, n: int) -> None:
        transport = httpx.ASGITransport(served, client=(client, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            params = {"path": ".", "pattern": client}
            asked = (http.post("/tools", json=GREP | {"params": params}) for _ in range(n))
            assert [response.status_code for response in await asyncio.gather(*asked)] == [200] * n

    monkeypatch.setattr(routes, "search", wait)
    served = serving.served(folder)
    busy = asyncio.create_task(ask("1.1.1.1", 8))
    first = [await asyncio.to_thread(running.get) for _ in range(MAX_CLIENT_CALLS)]
    other = asyncio.create_task(ask("2.2.2.2", 1))
    assert await asyncio.to_thread(running.get) == "2.2.2.2"
    assert first == ["1.1.1.1"] * MAX_CLIENT_CALLS
    may_end.set()
    await asyncio.gather(busy, other)
