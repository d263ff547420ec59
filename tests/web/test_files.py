"""The page's files as browsers get them, through the application of `/ui`."""

import gzip
import os
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError
from starlette.types import ASGIApp

from deployments.ingress.host_names import HostNames
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.web.routes import app
from deployments.web.settings import WebSettings
from serve_app.web_arguments import WebArguments
from tests.ingress.edge import ask

KEYS = IngressSettings(api_keys=("key",))
SCRIPT = "_app/immutable/start.js"
SOURCE = b"export const answer = 42;\n" * 100


@pytest.fixture
def dist(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    (folder / SCRIPT).parent.mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>Manta</title>")
    (folder / "manta.svg").write_text("<svg/>")
    (folder / SCRIPT).write_bytes(SOURCE)
    (folder / f"{SCRIPT}.gz").write_bytes(gzip.compress(SOURCE))
    (folder / "sources.sha256").write_text("0")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    return folder


def served(dist: Path, settings: IngressSettings = DEFAULTS) -> ASGIApp:
    return app(WebSettings(page=str(dist), why_no_page=str(dist / "why")), settings)


def get(dist: Path, path: str, method: str = "GET", **headers: str) -> httpx.Response:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return ask(served(dist), method, path, headers=sent)


def test_the_page_is_asked_for_again_each_time_and_sent_when_it_changed(dist: Path) -> None:
    first = get(dist, "/ui/")
    assert (first.status_code, first.headers["cache-control"]) == (200, "no-cache")
    assert first.headers["content-type"].startswith("text/html")
    assert get(dist, "/ui/", if_none_match=first.headers["etag"]).status_code == 304
    times = (dist / "index.html").stat()
    (dist / "index.html").write_text("<!doctype html><title>Other</title>")  # of the same size
    os.utime(dist / "index.html", ns=(times.st_atime_ns, times.st_mtime_ns))
    again = get(dist, "/ui/", if_none_match=first.headers["etag"])
    assert (again.status_code, "Other" in again.text) == (200, True)


def test_the_address_without_its_slash_leads_to_the_one_with_it(dist: Path) -> None:
    answer = get(dist, "/ui")
    assert (answer.status_code, answer.headers["location"]) == (307, "ui/")


@pytest.mark.parametrize(
    ("accepts", "packed"),
    [
        ("gzip, deflate, br", True),
        ("*", True),
        ("br;q=1, gzip;q=0.5", True),
        ("GZIP", True),
        ("gzip;q=0", False),
        ("br, *;q=0", False),
        ("gzip;q=x", False),
        ("identity", False),
        ("", False),
    ],
)
def test_a_file_is_packed_for_who_can_unpack_it(dist: Path, accepts: str, packed: bool) -> None:
    answer = get(dist, f"/ui/{SCRIPT}", accept_encoding=accepts)
    assert answer.content == SOURCE
    assert (answer.headers.get("content-encoding") == "gzip") is packed
    assert int(answer.headers["content-length"]) < 200 or not packed
    assert answer.headers["vary"] == "Accept-Encoding"
    assert "javascript" in answer.headers["content-type"]
    assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"


def test_a_file_without_a_packed_one_is_sent_as_it_is(dist: Path) -> None:
    answer = get(dist, "/ui/manta.svg", accept_encoding="gzip")
    assert (answer.text, "content-encoding" in answer.headers) == ("<svg/>", False)
    assert answer.headers["content-type"] == "image/svg+xml"


def test_a_head_has_the_headers_of_a_get_and_no_body(dist: Path) -> None:
    for path in ("/ui/", f"/ui/{SCRIPT}"):
        head, whole = get(dist, path, "HEAD"), get(dist, path)
        assert (head.status_code, head.content) == (200, b"")
        assert head.headers["content-length"] == whole.headers["content-length"]


@pytest.mark.parametrize(
    "path",
    [
        "/ui/nothing.js",
        "/ui/_app",
        "/ui/_app/",
        f"/ui/{SCRIPT}.gz",
        "/ui/sources.sha256",
        "/ui/..%2fsecret.txt",
        "/ui/%2e%2e/secret.txt",
        "/ui/link.txt",
        "/ui//etc/passwd",
        "/ui/%00",
        "/ui/" + "a" * 300,
    ],
)
def test_what_is_no_file_of_the_page_is_a_404_in_the_form_of_errors(dist: Path, path: str) -> None:
    answer = get(dist, path)
    assert answer.status_code == 404
    assert answer.json()["error"]["type"] == "not_found_error"


def test_files_take_no_other_method(dist: Path) -> None:
    answer = get(dist, "/ui/manta.svg", "POST")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_every_answer_forbids_what_the_page_does_not_need(dist: Path) -> None:
    for path in ("/ui/", f"/ui/{SCRIPT}", "/ui/nothing", "/ui/api/me"):
        headers = get(dist, path).headers
        policy = dict(
            directive.split(" ", 1) for directive in headers["content-security-policy"].split("; ")
        )
        assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["connect-src"] == "'self'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-opener-policy"] == "same-origin"
        assert headers["x-request-id"]


def test_the_page_may_ask_the_origins_that_the_operator_named_and_no_other(dist: Path) -> None:
    arguments = WebArguments(connect_origins=("https://tools.example.org:8443", "http://[::1]:80"))
    web = replace(arguments.web_settings(), page=str(dist))
    policy = ask(app(web), "GET", "/ui/").headers["content-security-policy"]
    assert "; connect-src 'self' https://tools.example.org:8443 http://[::1]:80; " in policy
    assert (
        policy.replace(" https://tools.example.org:8443 http://[::1]:80", "")
        == (get(dist, "/ui/").headers["content-security-policy"])
    )


@pytest.mark.parametrize(
    "origin", ["*", "https://*", "https://a.org/", "https://a.org; script-src *", "data:", "A.org"]
)
def test_what_is_no_origin_can_not_be_named(origin: str) -> None:
    with pytest.raises(ValidationError, match="connect_origins"):
        WebArguments.model_validate({"connect_origins": [origin]})


def test_a_page_that_is_not_built_is_a_503_that_says_how_to_build_it(tmp_path: Path) -> None:
    missing = tmp_path / "dist"
    shown = get(missing, "/ui/", accept="text/html,*/*")
    assert shown.status_code == 503
    assert shown.headers["content-type"].startswith("text/html")
    assert "pip install -e ." in shown.text
    told = get(missing, "/ui/")
    assert (told.status_code, told.json()["error"]["code"]) == (503, 503)
    assert "pip install -e ." in told.json()["error"]["message"]
    assert get(missing, "/ui/manta.svg").status_code == 404
    missing.mkdir()
    (missing / "index.html").write_text("built since")
    assert get(missing, "/ui/").text == "built since"


def test_the_files_need_no_key_and_the_endpoints_do(dist: Path) -> None:
    locked = served(dist, KEYS)
    for path in ("/ui", "/ui/", f"/ui/{SCRIPT}"):
        assert ask(locked, "GET", path).status_code < 400
    assert ask(locked, "GET", "/ui/nothing").status_code == 404
    for path in ("/ui/api", "/ui/api/", "/ui/api/me", "/ui/api/nothing"):
        assert ask(locked, "GET", path).status_code == 401
    allowed = ask(locked, "GET", "/ui/api/me", headers={"authorization": "Bearer key"})
    assert allowed.json()["shared"] is False


def test_a_name_that_is_not_the_servers_is_refused_without_keys(dist: Path) -> None:
    checked = IngressSettings(host_names=HostNames((), lambda: "127.0.0.1"))
    for path in ("/ui/", "/ui/api/me"):
        answer = ask(served(dist, checked), "GET", path, headers={"host": "evil.example"})
        assert answer.status_code == 421
        assert ask(served(dist, checked), "GET", path, headers={"host": "localhost"}).is_success


def test_without_a_store_chats_stay_in_the_browser(dist: Path) -> None:
    assert get(dist, "/ui/api/me").json()["store"] == "none"
