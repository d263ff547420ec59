"""The model uses the server's tools, and who asks is asked before each call."""

import pytest
from playwright.sync_api import expect

from tests.web.browser.driving.device import Device
from tests.web.browser.driving.screen import Screen

NAME = "read_file"


@pytest.fixture
def screen(device: Device) -> Screen:
    made = device(settings={"useTools": True})
    made.next_call(NAME, path="notes.txt")
    return made


def test_a_call_is_made_when_it_is_allowed_once(screen: Screen) -> None:
    screen.next_answer("I have read it.")
    screen.ask("Read notes.txt")
    call = screen.role("group", f"Tool call {NAME}")
    call.get_by_role("button", name="Allow once", exact=True).click()
    expect(screen.log).to_contain_text("I have read it.")
    expect(screen.log).to_contain_text("The harbour opens at nine.")
    screen.wait_for_end()
    screen.next_call(NAME, path="notes.txt")
    screen.ask("Read it again")
    expect(screen.button("Allow once")).to_be_visible()  # it was for once
    screen.button("Deny").click()


def test_a_denied_call_is_not_made(screen: Screen) -> None:
    made = []
    screen.page.on(
        "request", lambda r: made.append(r) if r.method == "POST" and "/tools" in r.url else None
    )
    screen.next_answer("Then I do not know.")
    screen.ask("Read notes.txt")
    screen.button("Deny").click()
    expect(screen.log).to_contain_text("Then I do not know.")
    assert made == []


def test_what_is_always_allowed_is_not_asked_again(screen: Screen) -> None:
    screen.next_answer("Once.")
    screen.next_call(NAME, path="notes.txt")
    screen.next_answer("Twice.")
    screen.ask("Read notes.txt")
    screen.button("Always allow").click()
    expect(screen.log).to_contain_text("Once.")
    screen.wait_for_end()
    screen.ask("Read it again")
    expect(screen.log).to_contain_text("Twice.")
    expect(screen.button("Allow once")).to_have_count(0)
