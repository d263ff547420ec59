"""The same chats on every device: what either wrote, with and without a network, both have."""

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.web.browser.driving.device import Device
from tests.web.browser.driving.graph import key_of
from tests.web.browser.driving.page import Problems
from tests.web.browser.driving.screen import Screen
from tests.web.browser.test_sign_in import REFUSED, sign_in

# The browser's console tells of each request that fails.
OFFLINE = "ERR_INTERNET_DISCONNECTED"
CONFLICT = "status of 4(04|10|12)"
DATABASES = "async () => (await indexedDB.databases()).length"
QUESTION = "What is the capital of France?"


def state(screen: Screen) -> Locator:
    return screen.role("status", "Sync")


def synced(*screens: Screen) -> None:
    for screen in screens:
        expect(state(screen)).to_have_text("Synced")


def go_offline(screen: Screen) -> None:
    screen.page.context.set_offline(True)
    expect(state(screen)).to_have_text("Offline")


def rename(screen: Screen, title: str, name: str) -> None:
    screen.choose_in_chat_menu(title, "Rename")
    field = screen.role("textbox", "Title of the chat")
    field.fill(name)
    field.press("Enter")
    expect(screen.chat(name)).to_be_visible()


def edit(screen: Screen, text: str) -> None:
    """The last answer, which asks no model."""
    screen.act(screen.answers.last, "Edit message")
    screen.role("textbox", "Edit message").fill(text)
    screen.button("Save as new branch").click()
    expect(screen.answers.last).to_contain_text(text)


def shows_branch(screen: Screen, number: int, of: int) -> None:
    expect(screen.role("status", f"Branch {number} of {of}")).to_be_visible()


def branches(screen: Screen, other: Screen, of: int) -> str:
    """The last answer on each of its branches; the last one is left open."""
    status = screen.role("status", re.compile(f"^Branch [0-9]+ of {of}$"))
    expect(status).to_be_visible()
    shown = re.search("[0-9]+", status.get_attribute("aria-label") or "")
    assert shown
    for number in range(int(shown[0]) - 1, 0, -1):
        screen.act(screen.answers.last, "Previous branch")
        shows_branch(screen, number, of)
    shows_branch(other, 1, of)  # so that no earlier step is still on its way there
    found = screen.answers.last.inner_text()
    for number in range(2, of + 1):
        screen.act(screen.answers.last, "Next branch")
        shows_branch(screen, number, of)
        found += screen.answers.last.inner_text()
    return found


def test_another_device_has_the_chat_and_hears_of_what_is_new(
    device: Device, problems: Problems
) -> None:
    problems.expect(CONFLICT)  # where both write of the chat, the later one is told so and merges
    mine, theirs = device(), device()
    mine.ask_and_wait(QUESTION)
    theirs.chat(QUESTION).click()
    expect(theirs.answers).to_contain_text("Paris")
    mine.ask_and_wait("And of Norway?")
    expect(theirs.questions).to_have_count(2)
    rename(theirs, QUESTION, "Capitals")
    expect(mine.chat("Capitals")).to_be_visible()
    mine.choose_in_chat_menu("Capitals", "Delete")
    mine.role("alertdialog", "Delete chat?").get_by_role("button", name="Delete").click()
    expect(theirs.chats).to_have_count(0)
    expect(theirs.questions).to_have_count(0)


def test_nothing_is_lost_where_both_write_while_one_is_offline(
    device: Device, problems: Problems
) -> None:
    problems.expect(OFFLINE)
    problems.expect(CONFLICT)
    mine, theirs = device(), device()
    mine.ask_and_wait(QUESTION)
    theirs.chat(QUESTION).click()
    expect(theirs.answers).to_contain_text("Paris")
    go_offline(theirs)
    edit(theirs, "It is Oslo.")
    rename(theirs, QUESTION, "Norway")
    edit(mine, "It is Lisbon.")
    mine.choose_in_chat_menu(QUESTION, "Pin")
    synced(mine)
    expect(state(theirs)).to_have_text("Offline")
    theirs.page.context.set_offline(False)
    synced(theirs, mine)
    expect(mine.chat("Norway")).to_be_visible()
    expect(theirs.role("heading", "Pinned")).to_be_visible()
    for screen, other in ((mine, theirs), (theirs, mine)):
        expect(screen.chats).to_have_count(1)
        found = branches(screen, other, 3)
        assert all(city in found for city in ("Paris", "Oslo", "Lisbon"))
        shows_branch(other, 3, of=3)
    expect(mine.log).to_have_text(theirs.log.inner_text(), use_inner_text=True)


@pytest.mark.exhaustive  # services/sync.test.ts says what stays
def test_what_was_written_in_a_chat_that_was_deleted_elsewhere_stays(
    device: Device, problems: Problems
) -> None:
    problems.expect(OFFLINE)
    problems.expect(CONFLICT)
    mine, theirs = device(), device()
    mine.ask_and_wait(QUESTION)
    theirs.chat(QUESTION).click()
    expect(theirs.answers).to_contain_text("Paris")
    go_offline(theirs)
    edit(theirs, "It is Oslo.")
    mine.choose_in_chat_menu(QUESTION, "Delete")
    mine.role("alertdialog", "Delete chat?").get_by_role("button", name="Delete").click()
    synced(mine)
    theirs.page.context.set_offline(False)
    for screen in (theirs, mine):
        screen.chat(f"{QUESTION} (restored)").click()
        expect(screen.answers).to_contain_text("Oslo")
        expect(screen.chats).to_have_count(1)


def test_chats_are_read_without_a_network(device: Device, problems: Problems) -> None:
    problems.expect(OFFLINE)
    mine, theirs = device(), device()
    mine.ask_and_wait(QUESTION)
    theirs.role("searchbox", "Search chats").fill("Paris")
    expect(theirs.page.get_by_text("One chat found")).to_be_visible()  # its answer is here
    go_offline(theirs)
    theirs.chat(QUESTION).click()
    expect(theirs.answers).to_contain_text("Paris")


@pytest.mark.exhaustive  # stores/conversations.test.ts has other tabs
def test_tabs_of_one_browser_show_the_same(device: Device) -> None:
    one = device()
    other = Screen(one.page.context.new_page())
    other.open()
    one.ask_and_wait(QUESTION)
    other.chat(QUESTION).click()
    expect(other.answers).to_contain_text("Paris")
    synced(one, other)
    # The tab that talked to the server is gone: the other goes on.
    one.page.close()
    rename(other, QUESTION, "France")
    synced(other)
    expect(device().chat("France")).to_be_visible()


def test_signing_out_takes_the_chats_from_this_device_once_the_server_has_them(
    device: Device, problems: Problems, key: str
) -> None:
    problems.expect(OFFLINE)
    problems.expect(REFUSED)
    screen = device()
    screen.ask_and_wait(QUESTION)
    synced(screen)
    go_offline(screen)
    rename(screen, QUESTION, "France")
    sign_out(screen)
    assert screen.page.evaluate(DATABASES) == 1
    screen.page.context.set_offline(False)
    sign_in(screen, key)
    expect(screen.chat("France")).to_be_visible()
    synced(screen)
    sign_out(screen)
    assert screen.page.evaluate(DATABASES) == 0
    expect(device().chat("France")).to_be_visible()


def test_who_signs_in_next_has_nothing_of_who_was_there_before(
    device: Device, problems: Problems, key: str
) -> None:
    problems.expect(OFFLINE)
    problems.expect(REFUSED)
    screen = device()
    screen.ask_and_wait(QUESTION)
    synced(screen)
    go_offline(screen)
    rename(screen, QUESTION, "France")  # the server has not got this
    sign_out(screen)
    screen.page.context.set_offline(False)
    sign_in(screen, key_of(196))
    synced(screen)
    expect(screen.chats).to_have_count(0)
    expect(screen.questions).to_have_count(0)
    other = device(of=key_of(196))
    synced(other)
    expect(other.chats).to_have_count(0)
    sign_out(screen)
    sign_in(screen, key)
    expect(screen.chat("France")).to_be_visible()


def sign_out(screen: Screen) -> None:
    screen.open_settings("General")
    screen.button("Sign out").click()
    expect(screen.role("heading", "Sign in")).to_be_visible()
