"""Devices: browsers that share nothing but the server."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

from playwright.sync_api import Browser

from tests.web.browser.driving.page import Problems, watched_page
from tests.web.browser.driving.screen import Screen


class Device(Protocol):
    def __call__(self, of: str | None = ..., **options: Any) -> Screen:
        """A new one at the new chat. of: the key of who is signed in, None for nobody. options:
        `watched_page`'s.
        """


@contextmanager
def devices(browser: Browser, url: str, problems: Problems, key: str | None) -> Iterator[Device]:
    """key: of whoever no other is said for. All are closed at the end."""
    with ExitStack() as opened:

        def make(of: str | None = key, **options: Any) -> Screen:
            page = opened.enter_context(watched_page(browser, url, problems, key=of, **options))
            screen = Screen(page)
            screen.open()
            return screen

        yield make
