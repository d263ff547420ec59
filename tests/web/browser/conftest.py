"""One server and one browser for all tests of the page.

Both end with this folder: while Playwright runs, no other test of the process can use asyncio.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.e2e.server import Server
from tests.web.browser.chromium import ARGUMENTS, REQUIRED, NoBrowserError, find_chromium
from tests.web.browser.page import Problems, watched_page


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
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """`serve.yaml` as it stands, with the demo model; not started where no browser runs."""
    with Server(tmp_path_factory.mktemp("web"), {"kv_gib": 0.25}) as running:
        yield running


@pytest.fixture
def problems(server: Server) -> Problems:
    return Problems(server.url)


@pytest.fixture
def page(browser: Browser, server: Server, problems: Problems) -> Iterator[Page]:
    """A new tab, 1280 px wide, that fails its test by a console error, a page error, a CSP report
    or a request to another origin.
    """
    with watched_page(browser, server.url, problems) as made:
        yield made
