"""axe finds nothing of any impact on any screen, in both themes, at both widths."""

import pytest

from tests.web.browser.driving.chromium import find_axe
from tests.web.browser.driving.device import Device
from tests.web.browser.driving.page import Problems
from tests.web.browser.driving.screens import SCREENS, THEMES, WIDTHS

RULES = "['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']"
FIND = f"""async () => {{
    // What fades in is judged when it is there.
    await Promise.all(document.getAnimations().map((one) => one.finished.catch(() => null)));
    const found = await axe.run(document, {{runOnly: {RULES}, resultTypes: ['violations']}});
    return found.violations.flatMap(
        (one) => one.nodes.map((node) => `${{one.id}}: ${{node.target}}: ${{node.failureSummary}}`),
    );
}}"""


@pytest.mark.parametrize("width", WIDTHS)
def test_axe_finds_nothing(device: Device, problems: Problems, width: int) -> None:
    source = find_axe()
    problems.expect("status of 40[01]")
    found: list[str] = []
    for name, show in SCREENS.items():
        screen = show(device, width)
        screen.page.evaluate(source)  # a script tag would be against the page's policy
        for theme in THEMES:
            screen.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            found += [f"{name}, {theme}, {width} px: {one}" for one in screen.page.evaluate(FIND)]
    assert not found, "\n".join(found)
