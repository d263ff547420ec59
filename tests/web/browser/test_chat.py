"""Who opens the server's address types, and reads an answer as it comes."""

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.server import Server
from tests.web.browser.page import Problems


def test_the_servers_address_leads_to_the_page(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/")
    expect(page).to_have_url(f"{server.url}/ui/")
    expect(page).to_have_title("Manta")


def test_an_answer_streams_in(page: Page) -> None:
    page.goto("./")
    box = page.get_by_role("textbox", name="Message")
    box.fill("What is the capital of France?")
    box.press("Enter")
    expect(page.get_by_role("article", name="You")).to_contain_text("capital of France")
    expect(page.get_by_role("article", name="manta-demo")).to_contain_text("Paris")
    expect(page.get_by_role("button", name="Send message")).to_be_visible()
    expect(box).to_be_focused()


@pytest.mark.parametrize(
    ("does", "is_told"),
    [
        ("console.error('wrong')", "console: wrong"),
        ("setTimeout(() => { throw new Error('thrown') })", "page error: "),
        ("fetch('http://127.0.0.1:9/').catch(() => 0)", "CSP report: connect-src"),
        ("open('http://127.0.0.1:9/')", "a request to another origin: http://127.0.0.1:9/"),
        (
            "document.head.append(Object.assign(document.createElement('script'), {text: '1'}))",
            "CSP report: script-src",
        ),
    ],
)
def test_what_a_page_must_not_do_is_found(
    page: Page, problems: Problems, does: str, is_told: str
) -> None:
    page.goto("./")
    page.evaluate(f"() => {{ {does} }}")
    found = lambda: [one for one in problems.unexpected() if is_told in one]  # noqa: E731
    for _ in range(50):
        if found():
            break
        page.wait_for_timeout(50)
    assert found()
    problems.expect("")
