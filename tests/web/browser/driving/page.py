"""A tab under watch: what it must never do is kept, and fails the test that did it."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request

OWN_SCHEMES = {"data", "blob", "about"}
# The browser's own reports, beside what it writes to the console.
TELL_OF_REPORTS = """
addEventListener('securitypolicyviolation', (event) => {
    console.error(`CSP report: ${event.violatedDirective} ${event.blockedURI}`);
});
// Of an error without a stack, such as Dexie's, Playwright has the name of its class alone.
addEventListener('unhandledrejection', ({ reason }) => {
    console.error(`not handled: ${reason} in ${location.href}`);
});
"""
# Once a tab, so that who signs out stays so.
SIGN_IN = """
if (location.protocol.startsWith('http') && !sessionStorage.getItem('was-here')) {
    sessionStorage.setItem('was-here', '1');
    sessionStorage.setItem('manta-key', %s);
}
"""
SETTINGS = """
if (location.protocol.startsWith('http') && !localStorage.getItem('manta-settings'))
    localStorage.setItem('manta-settings', %s);
"""
WAIT_MS = 30_000  # on a busy machine
LOAD_MS = 180_000  # until a model is there, or has gone


class Problems:
    """Console errors, page errors, CSP reports, dialogs and requests to other origins."""

    def __init__(self, url: str) -> None:
        self._origin = urlsplit(url)[:2]
        self._found: list[str] = []
        self._expected: list[re.Pattern[str]] = []

    def expect(self, pattern: str) -> None:
        """A test that has the server refuse something says what the browser's console then does."""
        self._expected.append(re.compile(pattern))

    def unexpected(self) -> list[str]:
        return [
            problem for problem in self._found if not any(e.search(problem) for e in self._expected)
        ]

    def watch(self, context: BrowserContext) -> None:
        context.add_init_script(TELL_OF_REPORTS)
        context.on("console", self._on_console)
        context.on("weberror", lambda error: self._found.append(f"page error: {error.error}"))
        context.on("request", self._on_request)
        context.on("page", self._watch_page)

    def _watch_page(self, page: Page) -> None:
        def on_dialog(dialog: object) -> None:
            self._found.append(f"a dialog: {dialog}")

        page.on("dialog", on_dialog)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._found.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _on_request(self, request: Request) -> None:
        address = urlsplit(request.url)
        if address.scheme not in OWN_SCHEMES and address[:2] != self._origin:
            self._found.append(f"a request to another origin: {request.url}")


@contextmanager
def watched_page(
    browser: Browser,
    url: str,
    problems: Problems,
    *,
    key: str | None = None,
    settings: dict[str, object] | None = None,
    width: int = 1280,
    height: int = 800,
    **options: object,
) -> Iterator[Page]:
    """A page of a context of its own: nothing stored, and addresses relative to the page's.

    key: who is signed in. settings: the page's, as chosen earlier. options: the context's.
    """
    options = {"service_workers": "block", **options}  # what one answers, no test would see
    context = browser.new_context(
        base_url=f"{url}/ui/",
        viewport={"width": width, "height": height},
        reduced_motion="reduce",
        **options,  # type: ignore[arg-type]
    )
    context.set_default_timeout(WAIT_MS)
    problems.watch(context)
    if key is not None:
        context.add_init_script(SIGN_IN % json.dumps(key))
    if settings is not None:
        stored = json.dumps(json.dumps({"version": 1, "values": settings}))
        context.add_init_script(SETTINGS % stored)
    try:
        yield context.new_page()
    finally:
        context.close()
    assert not problems.unexpected(), "; ".join(problems.unexpected())
