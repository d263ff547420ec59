"""A server with keys asks for one; what is stored belongs to its owner alone."""

from playwright.sync_api import Page, expect

from tests.web.browser.driving.device import Device
from tests.web.browser.driving.graph import key_of
from tests.web.browser.driving.page import Problems
from tests.web.browser.driving.screen import Screen

REFUSED = "status of 401"


def sign_in(screen: Screen, key: str, *, remember: bool = False) -> None:
    expect(screen.role("heading", "Sign in")).to_be_visible()
    screen.role("textbox", "API key").fill(key)
    if remember:
        screen.role("checkbox", "Remember on this device").check()
    screen.button("Sign in").click()


def test_a_wrong_key_is_said_and_the_right_one_leads_in(
    page: Page, problems: Problems, key: str
) -> None:
    problems.expect(REFUSED)
    screen = Screen(page)
    screen.open()
    sign_in(screen, "wrong")
    expect(screen.role("alert")).to_contain_text("This key is not accepted")
    sign_in(screen, key)
    expect(screen.box).to_be_visible()
    screen.ask_and_wait("What is the capital of France?")
    expect(screen.answers).to_contain_text("Paris")
    assert page.evaluate("localStorage.getItem('manta-key')") is None
    page.reload()
    expect(screen.answers).to_contain_text("Paris")  # of this tab
    other = Screen(page.context.new_page())
    other.open()
    expect(other.role("heading", "Sign in")).to_be_visible()


def test_a_remembered_key_is_every_tabs_until_one_signs_out(
    page: Page, problems: Problems, key: str
) -> None:
    problems.expect(REFUSED)
    screen = Screen(page)
    screen.open()
    sign_in(screen, key, remember=True)
    expect(screen.box).to_be_visible()
    other = Screen(page.context.new_page())
    other.open()
    expect(other.box).to_be_visible()
    dialog = other.open_settings("General")
    dialog.get_by_role("button", name="Sign out", exact=True).click()
    expect(other.role("heading", "Sign in")).to_be_visible()
    other.page.reload()
    expect(other.role("heading", "Sign in")).to_be_visible()


def test_nobody_sees_anothers_chats(device: Device) -> None:
    mine = device()
    mine.ask_and_wait("What is the capital of Portugal?")
    expect(mine.role("status", "Sync")).to_contain_text("Synced")
    theirs = device(of=key_of(198))
    expect(theirs.role("status", "Sync")).to_contain_text("Synced")
    expect(theirs.role("link").filter(has_text="Portugal")).to_have_count(0)
    again = device()
    again.chat("What is the capital of Portugal?").click()
    expect(again.answers).to_contain_text("Lisbon")
