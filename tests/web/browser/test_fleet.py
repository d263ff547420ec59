"""Operators see models, replicas, pages and latencies, and load and unload models."""

from playwright.sync_api import expect

from tests.web.browser.driving.device import Device
from tests.web.browser.driving.graph import BROKEN, DEMO, OTHER, SMALL
from tests.web.browser.driving.page import LOAD_MS
from tests.web.browser.driving.screen import Screen


def open_fleet(screen: Screen) -> None:
    screen.role("link", "Fleet").click()
    expect(screen.role("heading", "Fleet")).to_be_visible()


def test_the_fleet_is_shown_while_it_answers(device: Device, slow_url: str) -> None:
    asking, screen = device(), device()
    open_fleet(screen)
    models = screen.role("table", "Models")
    for name in (DEMO, OTHER, SMALL, BROKEN):
        expect(models.get_by_role("row").filter(has_text=name).first).to_be_visible()
    asking.endless_answer(slow_url)
    asking.ask("Tell me a story")
    row = models.get_by_role("row").filter(has_text=DEMO).first
    expect(row.get_by_role("cell", name="1", exact=True).first).to_be_visible()
    chart = screen.page.get_by_role("img", name="Tokens a second, last 10 minutes")
    expect(chart).to_be_visible()
    asking.button("Stop generating").click()
    expect(asking.button("Send message")).to_be_visible()


def test_a_load_is_watched(screen: Screen) -> None:
    open_fleet(screen)

    def confirmed() -> None:
        unload.click()
        dialog = screen.role("alertdialog", "Unload model?")
        expect(dialog).to_contain_text("No answer runs.")
        dialog.get_by_role("button", name="Unload").click()

    load, unload = screen.button(f"Load {SMALL}"), screen.button(f"Unload {SMALL}")
    expect(load.or_(unload)).to_be_visible(timeout=LOAD_MS)
    if unload.is_visible():  # another test had it loaded
        confirmed()
    expect(load).to_be_visible(timeout=LOAD_MS)
    load.click()
    expect(unload).to_be_visible(timeout=LOAD_MS)
    confirmed()
    expect(load).to_be_visible(timeout=LOAD_MS)
