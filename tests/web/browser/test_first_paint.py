"""The message box stands before the page's scripts are there; what is done in it is not lost."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.effort import tries
from tests.web.browser.driving.device import Device
from tests.web.browser.driving.page import Problems
from tests.web.browser.driving.screen import Screen

SCRIPTS = "**/_app/**/*.js"


@contextmanager
def before_it_runs(page: Page, path: str | None = None) -> Iterator[None]:
    """Loads the page, anew or at `path`. Its scripts come at the end."""
    delayed: list[Route] = []
    is_delayed = True

    def delay(route: Route) -> None:
        if is_delayed:
            delayed.append(route)
        else:
            route.continue_()

    page.route(SCRIPTS, delay)
    if path is None:
        page.reload(wait_until="commit")
    else:
        page.goto("about:blank")
        page.goto(path, wait_until="commit")
    yield
    is_delayed = False
    for route in delayed:
        route.continue_()


def test_what_is_typed_before_the_page_runs_is_kept_with_its_caret(screen: Screen) -> None:
    with before_it_runs(screen.page):
        expect(screen.box).to_be_focused()
        screen.page.keyboard.type("What rain?")
        for _ in "rain?":
            screen.page.keyboard.press("ArrowLeft")
        expect(screen.box).to_have_value("What rain?")
    screen.wait_until_it_runs()
    expect(screen.box).to_have_value("What rain?")
    expect(screen.box).to_be_focused()
    screen.page.keyboard.type("is ")
    expect(screen.box).to_have_value("What is rain?")


@pytest.mark.exhaustive
def test_it_stands_behind_the_draft_of_its_chat(screen: Screen) -> None:
    screen.ask_and_wait("What is the capital of Norway?")
    screen.box.press_sequentially("And of")
    screen.button("New chat").click()
    expect(screen.box).to_have_value("")
    screen.chat("What is the capital of Norway?").click()
    expect(screen.box).to_have_value("And of")
    with before_it_runs(screen.page):
        expect(screen.box).to_be_focused()
        screen.page.keyboard.type("Kenya?")
    expect(screen.answers).to_contain_text("Oslo")
    expect(screen.box).to_have_value("And of\nKenya?")
    screen.page.keyboard.type("!")
    expect(screen.box).to_have_value("And of\nKenya?!")


@pytest.mark.parametrize(
    "way", ["Enter", pytest.param("Send message", marks=pytest.mark.exhaustive)]
)
def test_a_question_asked_before_the_page_runs_is_sent_then(screen: Screen, way: str) -> None:
    screen.next_answer("Water.")
    with before_it_runs(screen.page):
        expect(screen.box).to_be_focused()
        screen.page.keyboard.type("What is rain?")
        if way == "Enter":
            screen.page.keyboard.press("Enter")
        else:
            screen.button(way).click()
        expect(screen.role("status").filter(has_text="What is rain?")).to_be_visible()
        screen.page.keyboard.type("And snow?")
        expect(screen.box).to_have_value("And snow?")
    expect(screen.questions).to_have_text("What is rain?")
    expect(screen.answers).to_contain_text("Water.")
    expect(screen.box).to_have_value("And snow?")
    expect(screen.box).to_be_focused()


@pytest.mark.exhaustive
def test_enter_makes_a_line_where_it_is_chosen_to(device: Device) -> None:
    screen = device(settings={"sendWith": "mod-enter"})
    screen.next_answer("Water.")
    with before_it_runs(screen.page):
        expect(screen.box).to_be_focused()
        screen.page.keyboard.type("What\nis rain?")
        expect(screen.box).to_have_value("What\nis rain?")
        screen.page.keyboard.press("Control+Enter")
        expect(screen.box).to_have_value("")
    expect(screen.questions).to_contain_text("is rain?")
    expect(screen.answers).to_contain_text("Water.")


@pytest.mark.exhaustive
def test_a_word_that_is_composed_is_not_cut(screen: Screen) -> None:
    """An input method composes it, as for Japanese, while the page begins to run."""
    keyboard = screen.page.context.new_cdp_session(screen.page)
    with before_it_runs(screen.page):
        expect(screen.box).to_be_focused()
        composed = {"text": "ame", "selectionStart": 3, "selectionEnd": 3}
        keyboard.send("Input.imeSetComposition", composed)
        expect(screen.box).to_have_value("ame")
    screen.wait_until_it_runs()
    keyboard.send("Input.insertText", {"text": "雨"})
    expect(screen.box).to_have_value("雨")
    expect(screen.box).to_be_focused()
    screen.page.keyboard.type("?")
    expect(screen.box).to_have_value("雨?")


@pytest.mark.parametrize("width", tries([390], [1280, 768, 390]))
def test_the_box_stands_where_the_page_has_it(device: Device, width: int) -> None:
    on_phone: dict[str, Any] = {"height": 844, "has_touch": True, "is_mobile": True}
    screen = device(width=width, **(on_phone if width < 500 else {}))
    with before_it_runs(screen.page):
        expect(screen.box).to_be_visible()
        first = screen.box.bounding_box()
    expect(screen.role("list", "Starters")).to_be_visible()
    assert screen.box.bounding_box() == first
    screen.ask_and_wait("What is the capital of Norway?")
    with before_it_runs(screen.page):
        expect(screen.box).to_be_visible()
        first = screen.box.bounding_box()
    expect(screen.answers).to_contain_text("Oslo")
    assert screen.box.bounding_box() == first


@pytest.mark.exhaustive
def test_no_box_stands_where_the_page_has_none(screen: Screen) -> None:
    box = screen.page.get_by_label("Message", exact=True)
    with before_it_runs(screen.page, "./#/fleet"):
        expect(box).to_be_attached()
        expect(box).to_be_hidden()
    expect(screen.role("heading", "Fleet")).to_be_visible()


def test_what_nobody_wrote_is_not_of_who_signs_in(page: Page, problems: Problems, key: str) -> None:
    problems.expect("status of 401")
    screen = Screen(page)
    with before_it_runs(page, "./"):
        expect(screen.box).to_be_focused()
        page.keyboard.type("A secret")
        expect(screen.box).to_have_value("A secret")
    screen.role("textbox", "API key").fill(key)
    screen.button("Sign in").click()
    expect(screen.role("status", "Sync")).to_contain_text("Synced")
    expect(screen.box).to_have_value("")


IS_KEPT = """navigator.serviceWorker.ready.then(async () => {
    const first = document.querySelector('link[rel=stylesheet]').href;
    while (!(await caches.match(first))) await new Promise((done) => setTimeout(done, 50));
    return (await caches.keys()).length;
})"""


def test_the_page_opens_where_no_server_can_be_reached(device: Device, problems: Problems) -> None:
    """It is kept with the first visit; so are the chats."""
    problems.expect("Failed to load resource|Failed to fetch|ERR_INTERNET_DISCONNECTED")
    screen = device(service_workers="allow")
    screen.next_answer("Oslo.")
    screen.ask_and_wait("What is the capital of Norway?")
    assert screen.page.evaluate(IS_KEPT) == 1
    screen.page.context.set_offline(True)
    screen.page.reload()
    expect(screen.answers).to_contain_text("Oslo.")
    screen.box.fill("And of France?")
    expect(screen.role("banner").or_(screen.role("main")).first).to_be_visible()
    screen.page.context.set_offline(False)
