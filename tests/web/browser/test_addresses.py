"""The page works wherever it lies: below a path prefix, behind HAProxy, on plain HTTP by a name."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.server import THROUGHPUT_MODE, Server
from tests.web.browser.driving.chromium import ARGUMENTS, find_chromium
from tests.web.browser.driving.device import devices
from tests.web.browser.driving.page import Problems
from tests.web.browser.driving.proxy import proxied
from tests.web.browser.driving.screen import Screen

NAME = "manta.test"


def talk(screen: Screen) -> None:
    screen.ask_and_wait("What is the capital of France?")
    expect(screen.answers).to_contain_text("Paris")
    expect(screen.role("status", "Sync")).to_contain_text("Synced")
    screen.page.reload()
    expect(screen.answers).to_contain_text("Paris")
    screen.role("link", "Fleet").click()
    expect(screen.role("table", "Models")).to_contain_text("manta-demo")


def test_below_a_path_prefix(browser: Browser, server: Server, key: str) -> None:
    with (
        proxied(server.url, "/tools/manta") as url,
        devices(browser, url, Problems(url), key) as device,
    ):
        talk(device())


def test_on_plain_http_by_a_name(browser: Browser, server: Server, key: str) -> None:
    """The browser has no clipboard, no crypto.randomUUID and no locks there."""
    launched = browser.browser_type.launch(
        executable_path=find_chromium(),
        args=[*ARGUMENTS, f"--host-resolver-rules=MAP {NAME} 127.0.0.1"],
    )
    url = server.url.replace("127.0.0.1", NAME)
    problems = Problems(url)
    problems.expect("Cross-Origin-Opener-Policy")  # the browser says that it heeds it not here
    with devices(launched, url, problems, key) as device:
        screen = device()
        assert screen.page.evaluate("isSecureContext") is False
        screen.ask_and_wait("What is the capital of Norway?")
        screen.act(screen.answers, "Copy")
        screen.box.focus()
        screen.page.keyboard.press("Control+V")
        expect(screen.box).to_have_value("The capital of Norway is Oslo.")
        screen.box.fill("")
        talk(device())
    launched.close()


@pytest.fixture(scope="module")
def plain(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`serve.yaml` as it stands: no keys, no tools. Behind HAProxy."""
    folder = tmp_path_factory.mktemp("plain")
    environment = {**THROUGHPUT_MODE, "XDG_DATA_HOME": str(folder / "data")}
    with Server(folder, {"kv_gib": 0.25}, environment) as running:
        yield running


@pytest.mark.exhaustive
def test_behind_haproxy_without_keys(browser: Browser, plain: Server) -> None:
    with devices(browser, plain.url, Problems(plain.url), None) as device:
        screen = device()
        screen.page.goto(f"{plain.url}/")
        talk(screen)
        expect(screen.page.get_by_text("everyone who can open it")).to_be_visible()
