"""Many models: which there are, how far a load is, why one failed, and how another does."""

import pytest
from playwright.sync_api import expect

from tests.e2e.server import Server
from tests.web.browser.driving.graph import BROKEN, DEMO, OTHER, SEEING, SMALL, STARTERS
from tests.web.browser.driving.page import LOAD_MS, Problems
from tests.web.browser.driving.screen import Screen


def test_the_picker_tells_of_each_model(screen: Screen) -> None:
    screen.role("combobox", "Model").click()
    models = screen.role("listbox", "Models")
    for name in (DEMO, OTHER, SMALL, BROKEN):
        expect(models.get_by_role("option", name=name)).to_be_visible()
    expect(models.get_by_role("option", name=SEEING)).to_contain_text("not loaded · text, image")
    screen.page.keyboard.type("sma")
    expect(models.get_by_role("option")).to_have_count(1)
    screen.page.keyboard.press("Enter")
    expect(screen.role("combobox", "Model")).to_contain_text(SMALL)


def test_a_model_is_loaded_by_a_question_and_unloaded_on_the_fleets_page(
    screen: Screen, server: Server
) -> None:
    """Its progress is seen meanwhile; then the same is asked of the other model."""
    screen.pick_model(OTHER)
    screen.ask("What is the capital of France?")
    expect(screen.role("progressbar", f"Loading {OTHER}").first).to_be_visible()
    expect(screen.answers_of(OTHER)).to_contain_text("Paris", timeout=LOAD_MS)
    screen.wait_for_end()
    screen.act(screen.answers_of(OTHER), "Regenerate with another model")
    screen.role("menuitem", DEMO).click()
    expect(screen.answers).to_contain_text("Paris")
    expect(screen.role("status", "Branch 2 of 2")).to_be_visible()
    screen.role("link", "Fleet").click()
    screen.button(f"Unload {OTHER}").click()
    screen.role("alertdialog", "Unload model?").get_by_role("button", name="Unload").click()
    expect(screen.button(f"Load {OTHER}")).to_be_visible(timeout=LOAD_MS)


@pytest.mark.exhaustive  # tests/e2e/shared/test_presets.py says why
def test_why_a_model_could_not_be_loaded_is_said(screen: Screen, problems: Problems) -> None:
    problems.expect("status of 50[03]")
    screen.pick_model(BROKEN)
    screen.ask("Hello!")
    expect(screen.role("alert").filter(has_text="not as its config says")).to_be_visible(
        timeout=LOAD_MS
    )
    screen.role("combobox", "Model").click()
    option = screen.role("listbox", "Models").get_by_role("option", name=BROKEN)
    expect(option).to_contain_text("failed")
    screen.page.keyboard.press("Escape")


def test_a_new_chat_offers_what_its_model_answers(screen: Screen) -> None:
    starters = screen.role("list", "Starters").get_by_role("button")
    expect(starters).to_have_text(STARTERS)
    screen.pick_model(SMALL)
    expect(starters).to_have_count(0)
    screen.pick_model(DEMO)
    starters.last.click()
    expect(screen.questions).to_have_text(STARTERS[-1])
    expect(screen.answers).to_contain_text("43")


def test_the_chosen_model_is_the_chats(screen: Screen) -> None:
    screen.ask_and_wait("Hello!")
    screen.button("New chat").click()
    screen.pick_model(SMALL)
    screen.chat("Hello!").click()
    expect(screen.role("combobox", "Model")).to_contain_text(DEMO)
