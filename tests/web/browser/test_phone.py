"""The page on a phone: the chats are a drawer, and what is seldom done is behind one button."""

from playwright.sync_api import expect

from tests.web.browser.driving.device import Device


def test_a_chat_on_a_phone(device: Device) -> None:
    screen = device(width=390, height=844, has_touch=True, is_mobile=True)
    expect(screen.role("navigation", "Chats")).to_have_count(0)
    screen.next_answer("A small answer.")
    screen.ask_and_wait("A small question")
    screen.next_answer("Another answer.")
    screen.answers.get_by_role("button", name="More actions").click()
    screen.answers.get_by_role("button", name="Regenerate", exact=True).click()
    expect(screen.answers).to_contain_text("Another answer.")
    screen.button("Toggle sidebar").click()
    drawer = screen.role("navigation", "Chats")
    expect(drawer.get_by_role("link", name="A small question")).to_be_visible()
    drawer.get_by_role("button", name="New chat", exact=True).click()
    expect(drawer).to_have_count(0)
    expect(screen.role("article")).to_have_count(0)
    width = screen.page.evaluate("document.documentElement.scrollWidth")
    assert width <= 390  # nothing goes over the edge
