"""One server and one browser for all tests of the page.

Both end with this folder: while Playwright runs, no other test of the process can use asyncio.
"""

from collections.abc import Iterator
from itertools import count

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.e2e.server import Server, free_port
from tests.web.browser.driving.chromium import ARGUMENTS, REQUIRED, NoBrowserError, find_chromium
from tests.web.browser.driving.device import Device, devices
from tests.web.browser.driving.graph import N_KEYS, key_of, running
from tests.web.browser.driving.page import Problems, watched_page
from tests.web.browser.driving.proxy import proxied
from tests.web.browser.driving.screen import Screen

_NUMBERS = count()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    try:
        program = find_chromium()
    except NoBrowserError as error:
        if REQUIRED:
            raise
        pytest.skip(f"no browser: {error}")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        yield launched
        launched.close()


@pytest.fixture(scope="package")
def mcp_port() -> int:
    """The port of the MCP server that the page may ask; only the tests of it start one."""
    return free_port()


@pytest.fixture(scope="package")
def server(
    browser: Browser, mcp_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """Not started where no browser runs."""
    with running(tmp_path_factory.mktemp("web"), [f"http://127.0.0.1:{mcp_port}"]) as started:
        yield started


@pytest.fixture(scope="package")
def slow_url(server: Server) -> Iterator[str]:
    """The address of a slow proxy before the server."""
    with proxied(server.url, is_slow=True) as url:
        yield url


@pytest.fixture
def problems(server: Server) -> Problems:
    return Problems(server.url)


@pytest.fixture
def key() -> str:
    """The key of an owner that has no chats yet."""
    number = next(_NUMBERS)
    assert number < N_KEYS - 1
    return key_of(number)


@pytest.fixture
def page(browser: Browser, server: Server, problems: Problems) -> Iterator[Page]:
    """A new tab, 1280 px wide, that fails its test by a console error, a page error, a CSP report
    or a request to another origin. Nobody is signed in.
    """
    with watched_page(browser, server.url, problems) as made:
        yield made


@pytest.fixture
def device(browser: Browser, server: Server, problems: Problems, key: str) -> Iterator[Device]:
    """Makes devices of the owner of `key`."""
    with devices(browser, server.url, problems, key) as made:
        yield made


@pytest.fixture
def screen(device: Device) -> Screen:
    return device()
