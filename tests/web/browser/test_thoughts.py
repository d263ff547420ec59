"""Thoughts stand apart from the answer; who asks chooses how long it may think."""

from playwright.sync_api import expect

from tests.e2e.server import Server
from tests.web.browser.driving.crowd import crowd
from tests.web.browser.driving.graph import DEMO
from tests.web.browser.driving.screen import Screen


def endless_thought(server: Server) -> dict[str, int]:
    marks = ("</think>", "<|im_end|>", "<|endoftext|>")
    asked = [server.http.post("/tokenize", json={"content": mark}).json() for mark in marks]
    return {str(answer["tokens"][0]): -100 for answer in asked}


def test_a_thought_is_apart_from_its_answer(screen: Screen) -> None:
    screen.next_answer(reasoning_effort="high")
    screen.ask("Think first: what is 2 plus 3?")
    thought = screen.answers.get_by_role("button", name="Thought")
    expect(thought).to_be_visible()
    screen.wait_for_end()
    expect(screen.answers).to_contain_text("5")
    for is_open in ("true", "false"):
        if thought.get_attribute("aria-expanded") != is_open:
            thought.click()
        expect(thought).to_have_attribute("aria-expanded", is_open)


def test_a_model_may_be_told_not_to_think(screen: Screen) -> None:
    screen.role("combobox", "Thinking").click()
    screen.role("option", "off").click()
    body = screen.sent_by("Think first: what is 2 plus 3?")
    assert body["reasoning_effort"] == "none"


def test_a_thought_that_goes_on_too_long_is_ended(screen: Screen, server: Server) -> None:
    screen.next_answer(
        reasoning_effort="high", logit_bias=endless_thought(server), max_tokens=1500, temperature=0
    )
    with crowd(server, DEMO):
        screen.ask("Think first: what is 2 plus 3?")
        screen.button("End thinking").click()
        expect(screen.button("End thinking")).to_have_count(0)
    thought = screen.answers.get_by_role("button", name="Thought")
    expect(thought).to_have_attribute("aria-expanded", "false")
    expect(screen.answers.get_by_role("paragraph").first).to_be_visible()  # so the answer's
