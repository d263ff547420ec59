"""A whole conversation by keyboard alone, and on a phone by touch."""

from playwright.sync_api import Locator, expect

from tests.web.browser.driving.device import Device
from tests.web.browser.driving.graph import DEMO, SMALL
from tests.web.browser.driving.screen import Screen


def tab_to(screen: Screen, target: Locator, *, back: bool = False) -> None:
    for _ in range(60):
        if target.evaluate("(element) => element === document.activeElement"):
            return
        screen.page.keyboard.press("Shift+Tab" if back else "Tab")
    raise AssertionError("the focus never came to it")


def test_a_conversation_by_keyboard(screen: Screen) -> None:
    press = screen.page.keyboard.press
    expect(screen.box).to_be_focused()
    screen.next_answer("The first answer.")
    screen.page.keyboard.type("Say something")
    press("Enter")
    expect(screen.answers).to_contain_text("The first answer.")
    screen.wait_for_end()
    expect(screen.box).to_be_focused()
    press("ArrowUp")  # edits the last question
    expect(screen.role("textbox", "Edit message")).to_be_focused()
    screen.next_answer("The second answer.")
    press("Control+A")
    screen.page.keyboard.type("Say something else")
    tab_to(screen, screen.button("Save as new branch"))
    press("Enter")
    expect(screen.answers).to_contain_text("The second answer.")
    screen.wait_for_end()
    tab_to(screen, screen.answers.get_by_role("button", name="Copy", exact=True), back=True)
    press("k")
    expect(screen.questions).to_be_focused()
    press("j")
    expect(screen.answers).to_be_focused()
    tab_to(screen, screen.questions.get_by_role("button", name="Copy", exact=True), back=True)
    press("Alt+ArrowLeft")
    expect(screen.answers).to_contain_text("The first answer.")
    press("Control+Shift+O")
    expect(screen.role("article")).to_have_count(0)
    expect(screen.box).to_be_focused()
    press("Control+K")
    expect(screen.role("searchbox", "Search chats")).to_be_focused()
    screen.page.keyboard.type("something")
    expect(screen.page.get_by_text("One chat found")).to_be_attached()
    press("ArrowDown")
    press("Enter")
    expect(screen.answers).to_contain_text("The first answer.")
    press("Control+Shift+D")
    dialog = screen.role("alertdialog", "Delete chat?")
    expect(dialog).to_be_visible()
    press("Escape")
    expect(dialog).to_have_count(0)


def test_escape_stops_an_answer(screen: Screen, slow_url: str) -> None:
    screen.endless_answer(slow_url)
    expect(screen.box).to_be_focused()
    screen.page.keyboard.type("Tell me a story")
    screen.page.keyboard.press("Enter")
    screen.wait_for_words()
    screen.page.keyboard.press("Escape")
    expect(screen.button("Send message")).to_be_visible()


def test_dialogs_and_menus_give_the_focus_back(screen: Screen) -> None:
    """Before them, who tabs first can skip to the message box."""
    press = screen.page.keyboard.press
    screen.wait_until_it_runs()
    screen.page.evaluate("document.activeElement.blur()")
    tab_to(screen, screen.role("link", "Skip to the message box"))
    press("Enter")
    expect(screen.box).to_be_focused()
    press("Control+M")
    expect(screen.role("listbox", "Models")).to_be_visible()
    screen.page.keyboard.type(SMALL)
    press("Escape")
    expect(screen.role("listbox", "Models")).to_have_count(0)
    expect(screen.role("combobox", "Model")).to_contain_text(DEMO)
    settings = screen.button("Settings")
    settings.focus()
    press("Enter")
    expect(screen.role("dialog", "Settings")).to_be_visible()
    press("Escape")
    expect(settings).to_be_focused()
    press("Control+,")
    expect(screen.role("dialog", "Settings")).to_be_visible()
    press("Escape")
    press("Control+/")
    expect(screen.role("dialog", "Keyboard shortcuts")).to_contain_text("Shift")
    press("Escape")
    expect(screen.role("dialog")).to_have_count(0)


def test_a_chat_on_a_phone(device: Device) -> None:
    """The chats are a drawer, and what is seldom done is behind one button."""
    screen = device(width=390, height=844, has_touch=True, is_mobile=True)
    expect(screen.role("navigation", "Chats")).to_have_count(0)
    screen.next_answer("A small answer.")
    screen.ask_and_wait("A small question")
    screen.next_answer("Another answer.")
    screen.act(screen.answers, "Regenerate")
    expect(screen.answers).to_contain_text("Another answer.")
    screen.wait_for_end()
    screen.answers.get_by_role("button", name="More actions").click()
    expect(screen.role("menuitem", "Delete message")).to_be_visible()
    screen.page.keyboard.press("Escape")
    screen.button("Toggle sidebar").click()
    drawer = screen.role("navigation", "Chats")
    expect(drawer.get_by_role("link", name="A small question")).to_be_visible()
    drawer.get_by_role("button", name="New chat", exact=True).click()
    expect(drawer).to_have_count(0)
    expect(screen.role("article")).to_have_count(0)
    width = screen.page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390  # nothing goes over the edge
