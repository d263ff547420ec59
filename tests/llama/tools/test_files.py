"""Reading and changing files, and that no path leads out of the folder."""

import base64
import os
from pathlib import Path

import pytest

from deployments.llama.tools.search_process import SEARCHES
from tests.llama.tools.serving import called, failed, searched

SECRET = "a secret"
MORE: dict[str, dict[str, object]] = {
    "read_file": {},
    "write_file": {"content": "x"},
    "edit_file": {"edits": [{"old_text": "secret", "new_text": "x"}]},
    "grep_search": {"pattern": "secret"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with links to all that lies beside it."""
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    (folder / "a.txt").write_text("one\ntwo\nthree\n")
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "folder2").mkdir()
    (tmp_path / "folder2" / "secret").write_text(SECRET)
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "up").symlink_to("..")
    (folder / "inner" / "self").symlink_to(".")
    os.mkfifo(folder / "pipe")
    return folder


@pytest.mark.parametrize(
    "path",
    [
        "../secret",
        "inner/../../secret",
        "inner/..",
        "link",
        "up/secret",
        "up/folder/a.txt",
        "inner/self/x",
        "pipe",
        "inner",
        "",
        ".",
        "/",
        "/etc/passwd",
        "a\0b",
        "x" * 5000,
        "a/" * 200,
        "a.txt/b",
        "{tmp}/secret",
        "{tmp}/folder2/secret",
        "{tmp}/folder/../secret",
        "{tmp}/folder/link",
        "/proc/self/environ",
    ],
)
@pytest.mark.parametrize("tool", MORE)
def test_no_path_leads_out(folder: Path, path: str, tool: str) -> None:
    given = path.format(tmp=folder.parent.resolve())
    ask = searched if tool in SEARCHES else called
    answer = ask(folder, tool, path=given, **MORE[tool])
    assert SECRET not in str(answer)
    assert "error" in answer or answer == {"plain_text_response": "", "matches": 0}
    assert (folder.parent / "secret").read_text() == SECRET
    assert (folder.parent / "folder2" / "secret").read_text() == SECRET
    assert (folder / "link").is_symlink()


@pytest.mark.parametrize("cwd", ["..", "/", "up", "/etc"])
def test_no_working_folder_leads_out(folder: Path, cwd: str) -> None:
    failed(folder, "read_file", {"x-tool-cwd": cwd}, path="secret")


def test_a_file_is_read_by_lines(folder: Path) -> None:
    assert called(folder, "read_file", path="a.txt") == {"plain_text_response": "one\ntwo\nthree\n"}
    some = called(folder, "read_file", path="./a.txt", start_line=2, end_line=2, append_loc=True)
    assert some == {"plain_text_response": "2: two\n"}
    whole = called(folder, "read_file", path=str(folder.resolve() / "a.txt"), start_line=9)
    assert whole == {"plain_text_response": ""}


def test_too_much_text_asks_for_a_range(folder: Path) -> None:
    (folder / "long").write_text("x" * 99 + "\n" * 1 + "y" * 20_000)
    assert "range" in failed(folder, "read_file", path="long")
    assert called(folder, "read_file", path="long", end_line=1)["plain_text_response"]


def test_bytes_are_read_as_base64(folder: Path) -> None:
    (folder / "raw").write_bytes(b"\xff\x00")
    assert "UTF-8" in failed(folder, "read_file", path="raw")
    read = called(folder, "read_file", {"x-resp-type": "base64"}, path="raw")
    assert base64.b64decode(read["base64"]) == b"\xff\x00"


def test_a_missing_file_is_an_error(folder: Path) -> None:
    assert failed(folder, "read_file", path="none") == "none: No such file or directory"


def test_a_file_is_written_with_its_folders(folder: Path) -> None:
    answer = called(folder, "write_file", path="new/deep/b.txt", content="gr\u00fc\u00df")
    assert answer == {
        "result": "file written successfully",
        "path": "new/deep/b.txt",
        "bytes": 6,
    }
    assert (folder / "new/deep/b.txt").read_text() == "gr\u00fc\u00df"
    assert [path.name for path in (folder / "new/deep").iterdir()] == ["b.txt"]


def test_a_file_that_is_replaced_keeps_its_permissions(folder: Path) -> None:
    (folder / "a.txt").chmod(0o750)
    called(folder, "write_file", path="a.txt", content="x")
    assert (folder / "a.txt").stat().st_mode & 0o777 == 0o750


def test_edits_are_applied_together(folder: Path) -> None:
    edits = [{"old_text": "three", "new_text": "3"}, {"old_text": "one\n", "new_text": ""}]
    answer = called(folder, "edit_file", path="a.txt", edits=edits)
    assert answer == {"result": "file edited successfully", "edits_applied": 2}
    assert (folder / "a.txt").read_text() == "two\n3\n"


@pytest.mark.parametrize(
    ("edits", "why"),
    [
        ([("four", "4")], "not in the file"),
        ([("t", "T")], "more than once"),
        ([("one", "1"), ("ne\ntwo", "2")], "overlap"),
        ([("one", "1"), ("four", "4")], "not in the file"),
    ],
)
def test_edits_that_are_not_clear_change_nothing(
    folder: Path, edits: list[tuple[str, str]], why: str
) -> None:
    written = [{"old_text": old, "new_text": new} for old, new in edits]
    assert why in failed(folder, "edit_file", path="a.txt", edits=written)
    assert (folder / "a.txt").read_text() == "one\ntwo\nthree\n"
