"""Screens keep the names that people and tests know them by, and axe finds nothing on any."""

import itertools
from pathlib import Path

from playwright.sync_api import expect

from tests.effort import tries
from tests.web.browser.driving.chromium import find_axe
from tests.web.browser.driving.device import Device
from tests.web.browser.driving.page import Problems
from tests.web.browser.driving.screens import HEIGHT, SCREENS, THEMES, WIDTHS

NAMES = Path(__file__).parent / "names"  # a file for each screen whose accessible tree is kept
VIEWS = list(itertools.product(WIDTHS, THEMES))
VIEWS_OF_EACH = tries(1, len(VIEWS))  # in turns
RULES = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']"
FIND = f"""async () => {{
    // What fades in is judged when it is there.
    await Promise.all(document.getAnimations().map((one) => one.finished.catch(() => null)));
    const found = await axe.run(document, {{runOnly: {RULES}, resultTypes: ['violations']}});
    return found.violations.flatMap(
        (one) => one.nodes.map((node) => `${{one.id}}: ${{node.target}}: ${{node.failureSummary}}`),
    );
}}"""


def test_each_screen_has_its_names_and_nothing_that_axe_finds(
    device: Device, problems: Problems
) -> None:
    source = find_axe()
    problems.expect("status of 40[01]")
    names = {path.stem: path.read_text() for path in NAMES.glob("*.yaml")}
    assert names.keys() < SCREENS.keys()
    found: list[str] = []
    views = itertools.cycle(VIEWS)
    for name, show in SCREENS.items():
        page = show(device, WIDTHS[0]).page
        if name in names:
            expect(page.locator("body")).to_match_aria_snapshot(names[name])
        page.evaluate(source)  # a script tag would be against the page's policy
        for width, theme in itertools.islice(views, VIEWS_OF_EACH):
            page.set_viewport_size({"width": width, "height": HEIGHT[width]})
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            found += [
                f"{name}, {theme}, {width} px: {violation}" for violation in page.evaluate(FIND)
            ]
    assert not found, "\n".join(found)
