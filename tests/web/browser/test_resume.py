"""A connection that drops and a page that is loaded anew lose nothing of an answer."""

import pytest
from playwright.sync_api import expect

from tests.e2e.server import Server
from tests.web.browser.driving.page import Problems
from tests.web.browser.driving.screen import Screen

LONG = " ".join(f"{number}," for number in range(1, 121)) + " done."
LONGER = " ".join(f"{number}," for number in range(1, 261))
BROKEN_OFF = "ERR_|Failed to load|Failed to fetch|network"


def text_of(screen: Screen) -> str:
    return " ".join(screen.answers.get_by_role("paragraph").first.inner_text().split())


def test_an_answer_goes_on_after_a_reload(screen: Screen) -> None:
    screen.next_answer(LONG)
    screen.ask("Count")
    expect(screen.answers).to_contain_text("5, 6,")
    screen.page.reload()
    expect(screen.answers).to_contain_text("done.", timeout=60_000)
    screen.wait_for_end()
    assert text_of(screen) == LONG
    expect(screen.questions).to_have_count(1)


@pytest.mark.exhaustive  # services/resume.test.ts has what drops
def test_an_answer_goes_on_after_the_connection_dropped(screen: Screen, problems: Problems) -> None:
    problems.expect(BROKEN_OFF)
    screen.next_answer(LONG)
    screen.ask("Count")
    expect(screen.answers).to_contain_text("5, 6,")
    screen.page.context.set_offline(True)
    screen.page.context.set_offline(False)
    expect(screen.answers).to_contain_text("done.", timeout=60_000)
    screen.wait_for_end()
    assert text_of(screen) == LONG


@pytest.mark.exhaustive
def test_an_answer_of_a_server_that_died_can_be_continued(
    screen: Screen, server: Server, problems: Problems
) -> None:
    problems.expect(f"{BROKEN_OFF}|status of 5")
    screen.next_answer(LONGER)
    screen.ask("Count")
    expect(screen.answers).to_contain_text("5, 6,")
    server.kill("openai")
    expect(screen.button("Continue")).to_be_visible(timeout=90_000)
    kept = text_of(screen)
    assert LONGER.startswith(kept.removesuffix("…").rstrip())
    server.eventually(server.is_ready)
    screen.next_answer(" and the rest.")
    screen.act(screen.answers, "Continue")
    expect(screen.answers).to_contain_text("and the rest.", timeout=60_000)
