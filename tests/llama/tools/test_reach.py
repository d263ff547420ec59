"""Only programs and the server's own pages may call the tools."""

from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.llama.serving import refusal
from tests.llama.tools.serving import asked, called

INFO = {"tool": "get_info", "params": {}}


def test_the_tools_are_listed_as_functions(tmp_path: Path) -> None:
    listed = {tool["tool"]: tool for tool in asked(tmp_path, "GET").json()}
    assert set(listed) == {
        "read_file",
        "file_glob_search",
        "grep_search",
        "write_file",
        "edit_file",
        "get_info",
        "get_datetime",
    }
    writing = {name for name, tool in listed.items() if tool["permissions"]["write"]}
    assert writing == {"write_file", "edit_file"}
    function = listed["read_file"]["definition"]["function"]
    assert function["name"] == "read_file"
    assert function["parameters"]["required"] == ["path"]
    assert listed["read_file"]["type"] == "server"


@pytest.mark.parametrize(
    ("base", "headers"),
    [
        ("http://localhost:8000", {}),
        ("http://127.0.0.1:8000", {}),
        ("http://[::1]:8000", {}),
        ("http://manta.example", {}),
        ("http://localhost:8000", {"origin": "http://localhost:8000"}),
        ("http://manta.example", {"origin": "http://manta.example:80"}),
        ("https://manta.example", {"origin": "https://manta.example"}),
        ("http://localhost:8000", {"sec-fetch-site": "same-origin"}),
        ("http://localhost:8000", {"sec-fetch-site": "none"}),
    ],
)
def test_programs_and_own_pages_are_let_in(
    tmp_path: Path, base: str, headers: dict[str, str]
) -> None:
    assert asked(tmp_path, "GET", base=base, headers=headers).status_code == 200
    assert asked(tmp_path, "POST", base=base, headers=headers, json=INFO).status_code == 200


@pytest.mark.parametrize(
    ("base", "headers"),
    [
        ("http://localhost:8000", {"origin": "http://evil.example"}),
        ("http://localhost:8000", {"origin": "null"}),
        ("http://localhost:8000", {"origin": ""}),
        ("http://localhost:8000", {"origin": "http://localhost:9000"}),
        ("http://localhost:8000", {"origin": "http://localhost.evil.example:8000"}),
        ("http://localhost:8000", {"origin": "http://localhost:8000@evil.example"}),
        ("http://localhost:8000", {"origin": "ftp://localhost:8000"}),
        ("http://localhost:8000", {"origin": "http://localhost:x"}),
        ("http://localhost:8000", {"sec-fetch-site": "cross-site"}),
        ("http://localhost:8000", {"sec-fetch-site": "same-site"}),
        ("http://evil.example:8000", {"origin": "http://evil.example:8000"}),
        ("http://evil.example:8000", {}),
        ("http://localhost.evil.example", {}),
        ("http://chat.localhost:8000", {}),
        ("http://127.0.0.1.evil.example", {}),
    ],
)
def test_pages_of_elsewhere_and_borrowed_names_are_not(
    tmp_path: Path, base: str, headers: dict[str, str]
) -> None:
    body = {"tool": "write_file", "params": {"path": "a", "content": "x"}}
    for response in (
        asked(tmp_path, "GET", base=base, headers=headers),
        asked(tmp_path, "POST", base=base, headers=headers, json=body),
    ):
        assert refusal(response, 403)["type"] == "permission_error"
        assert "access-control-allow-origin" not in response.headers
    assert not list(tmp_path.iterdir())


def test_pages_that_may_ask_for_the_rest_may_not_use_the_tools(tmp_path: Path) -> None:
    body = {"tool": "write_file", "params": {"path": "a", "content": "x"}}
    headers = {"origin": "http://page.example"}
    for origins in (("*",), ("http://page.example",)):
        response = asked(tmp_path, "POST", cors_origins=origins, headers=headers, json=body)
        refusal(response, 403)
    assert not list(tmp_path.iterdir())


def test_a_form_of_a_page_is_no_call(tmp_path: Path) -> None:
    content = b'{"tool": "get_info", "params": {}}'
    refusal(asked(tmp_path, "POST", content=content, headers={"content-type": "text/plain"}), 415)


@pytest.mark.parametrize(
    ("request_", "status", "param"),
    [
        ({"json": {"tool": "exec_shell_command", "params": {"command": "ls"}}}, 404, "tool"),
        ({"json": {"params": {}}}, 400, "tool"),
        ({"json": {"tool": "read_file", "params": {}}}, 400, "params.path"),
        ({"json": {"tool": "read_file", "params": {"path": 5}}}, 400, "params.path"),
        ({"json": {"tool": "read_file", "params": {"path": "a", "cwd": "/"}}}, 400, "params.cwd"),
        ({"json": {"tool": "get_info", "params": {}, "stream": True}}, 400, "stream"),
        ({"json": {**INFO, "extra": 1}}, 400, "extra"),
        ({"json": INFO, "headers": {"x-tool-runtime": "ssh:x"}}, 400, "x-tool-runtime"),
        ({"json": INFO, "headers": {"x-resp-type": "hex"}}, 400, "x-resp-type"),
    ],
)
def test_wrong_calls_are_refused(
    tmp_path: Path, request_: dict[str, Any], status: int, param: str
) -> None:
    response: httpx.Response = asked(tmp_path, "POST", **request_)
    error = refusal(response, status)
    assert error["param"] == param
    assert status == 404 or f"`{param}`" in error["message"]


def test_the_working_folder_comes_from_a_header(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a").write_text("here")
    headers = {"x-tool-cwd": "inner"}
    read = called(tmp_path, "read_file", headers, path="a")
    assert read == {"plain_text_response": "here"}
    info = called(tmp_path, "get_info", headers)
    assert info["cwd"] == str(tmp_path.resolve() / "inner")
    whole = {"x-tool-cwd": str(tmp_path.resolve() / "inner")}
    assert called(tmp_path, "read_file", whole, path="a") == read


def test_the_time_has_a_zone(tmp_path: Path) -> None:
    assert datetime.fromisoformat(called(tmp_path, "get_datetime")["datetime"]).tzinfo is not None
