"""Pictures of each screen, for people to look at.

    python -m tests.web.browser.screenshots [FOLDER]

Light and dark, 1280 and 390 px wide, into `serve_app/web/docs/pictures` if no folder is named.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.e2e.server import REPOSITORY
from tests.web.browser.driving.chromium import ARGUMENTS, find_chromium
from tests.web.browser.driving.device import Device, devices
from tests.web.browser.driving.graph import key_of, running
from tests.web.browser.driving.page import Problems
from tests.web.browser.driving.screens import SCREENS, THEMES, WIDTHS

PICTURES = REPOSITORY / "serve_app" / "web" / "docs" / "pictures"

DRAWN = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as made,
        sync_playwright() as playwright,
        running(Path(made)) as server,
    ):
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        numbers = iter(range(len(WIDTHS) * len(SCREENS)))
        for width in WIDTHS:
            for name in SCREENS:
                problems = Problems(server.url)
                problems.expect("status of 40[01]")
                with devices(browser, server.url, problems, key_of(next(numbers))) as device:
                    take(device, folder, name, width)
        browser.close()


def take(device: Device, folder: Path, name: str, width: int) -> None:
    page = SCREENS[name](device, width).page
    for theme in THEMES:
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        page.evaluate(DRAWN)  # charts read the colours anew
        path = folder / f"{name}-{theme}-{width}.png"
        page.screenshot(path=path, animations="disabled", caret="hide")
        print(path)


if __name__ == "__main__":
    main()
