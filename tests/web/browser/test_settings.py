"""How it samples and looks is the person's choice; which values are the server's is seen."""

import json
import re
from pathlib import Path

from playwright.sync_api import Locator, expect

from tests.web.browser.driving.device import Device
from tests.web.browser.driving.screen import Screen


def test_a_value_is_the_servers_until_it_is_changed_to_one_that_can_be(screen: Screen) -> None:
    dialog = screen.open_settings("Sampling")
    field = dialog.get_by_label("Temperature", exact=True)
    expect(field).to_have_value("")
    field.fill("7")
    field.press("Tab")
    expect(field).to_have_attribute("aria-invalid", "true")
    screen.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert "temperature" not in screen.sent_by("Hello!")
    dialog = screen.open_settings("Sampling")
    field = dialog.get_by_label("Temperature", exact=True)
    field.fill("0.1")
    field.press("Tab")
    screen.page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert screen.sent_by("Hello again!")["temperature"] == 0.1
    screen.page.reload()
    dialog = screen.open_settings("Sampling")
    expect(dialog.get_by_label("Temperature", exact=True)).to_have_value("0.1")
    dialog.get_by_role("button", name="Reset Temperature to the server's value").click()
    expect(dialog.get_by_label("Temperature", exact=True)).to_have_value("")
    screen.page.keyboard.press("Escape")
    assert "temperature" not in screen.sent_by("And once more!")


def test_all_values_can_be_given_back_and_taken_along(screen: Screen, tmp_path: Path) -> None:
    dialog = screen.open_settings("Sampling")
    dialog.get_by_label("Top-k", exact=True).fill("5")
    dialog.get_by_label("Top-k", exact=True).press("Tab")
    with screen.page.expect_download() as got:
        dialog.get_by_role("button", name="Export settings", exact=True).click()
    path = tmp_path / "settings.json"
    got.value.save_as(path)
    assert json.loads(path.read_text())["values"]["top_k"] == 5
    assert "key-of-owner" not in path.read_text()
    dialog.get_by_role("button", name="Reset all", exact=True).click()
    expect(dialog.get_by_label("Top-k", exact=True)).to_have_value("")


def test_a_system_message_is_sent_with_each_question(screen: Screen) -> None:
    dialog = screen.open_settings("General")
    field = dialog.get_by_label(re.compile("System message"))
    field.fill("You are a parrot.")
    field.press("Tab")
    screen.page.keyboard.press("Escape")
    body = screen.sent_by("Hello!")
    assert body["messages"] == [
        {"role": "system", "content": "You are a parrot."},
        {"role": "user", "content": "Hello!"},
    ]


def test_a_chat_has_settings_of_its_own_also_before_it_begins_and_by_a_preset(
    screen: Screen,
) -> None:
    def panel(title: str) -> Locator:
        screen.button("More").click()
        screen.role("menuitem", title).click()
        return screen.role("dialog", title)

    dialog = panel("Settings of the new chat")
    dialog.get_by_label("System message", exact=True).fill("You are a parrot.")
    field = dialog.get_by_label("Max tokens", exact=True)
    field.fill("3")
    field.press("Tab")
    dialog.get_by_text("More samplers").click()
    dialog.get_by_label("XTC threshold", exact=True).fill("0.2")
    dialog.get_by_label("Name of the preset").fill("Parrot")
    dialog.get_by_role("button", name="Save preset").click()
    screen.page.keyboard.press("Escape")
    body = screen.sent_by("Hello!")
    assert body["messages"][0] == {"role": "system", "content": "You are a parrot."}
    assert (body["max_tokens"], body["xtc_threshold"]) == (3, 0.2)
    screen.button("New chat").click()
    assert "max_tokens" not in screen.sent_by("Hello, who are you?")
    dialog = panel("Settings of this chat")
    dialog.get_by_label("Preset", exact=True).click()
    screen.role("option", "Parrot").click()
    expect(dialog.get_by_label("Max tokens", exact=True)).to_have_value("3")
    screen.page.keyboard.press("Escape")
    assert screen.sent_by("Hello again!")["max_tokens"] == 3


def test_enter_may_make_a_line_instead(device: Device) -> None:
    screen = device(settings={"sendWith": "mod-enter"})
    screen.box.fill("One")
    screen.box.press("Enter")
    screen.page.keyboard.type("two")
    expect(screen.questions).to_have_count(0)
    screen.box.press("Control+Enter")
    expect(screen.questions).to_contain_text("two")
    screen.wait_for_end()


def test_dark_and_light_are_chosen_or_the_systems(device: Device) -> None:
    screen = device(color_scheme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    body = screen.page.locator("body")
    dark = screen.page.evaluate(background)
    dialog = screen.open_settings("Display")
    dialog.get_by_role("radio", name="Light").or_(
        dialog.get_by_role("button", name="Light")
    ).first.click()
    expect(body).not_to_have_css("background-color", dark)
    light = screen.page.evaluate(background)
    screen.page.reload()
    expect(screen.box).to_be_visible()
    assert screen.page.evaluate(background) == light
