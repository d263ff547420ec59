"""Who opens the server's address types, reads the answer as it comes, and can stop it."""

import re

from playwright.sync_api import Page, Route, expect

from tests.e2e.server import Server
from tests.web.browser.driving.device import Device
from tests.web.browser.driving.page import WAIT_MS, Problems
from tests.web.browser.driving.screen import CHATS, Screen

REFUSED = "the server responded with a status of 400"


def test_the_servers_address_leads_to_the_page(
    page: Page, server: Server, problems: Problems
) -> None:
    problems.expect("status of 401")  # nobody is signed in yet
    page.goto(f"{server.url}/")
    expect(page).to_have_url(re.compile(rf"^{re.escape(server.url)}/ui/"))
    expect(page).to_have_title(re.compile("Manta"))


def test_an_answer_streams_in(screen: Screen) -> None:
    expect(screen.box).to_be_focused()
    screen.ask("What is the capital of France?")
    expect(screen.questions).to_contain_text("capital of France")
    expect(screen.answers).to_contain_text("Paris")
    screen.wait_for_end()
    expect(screen.box).to_be_focused()
    expect(screen.box).to_have_value("")
    expect(screen.chat("What is the capital of France?")).to_have_attribute("aria-current", "page")
    said = screen.role("status").filter(has_text="Answer finished")
    expect(said).to_have_count(1)
    expect(screen.log).to_have_attribute("aria-live", "off")


def test_a_question_may_have_lines_and_goes_by_the_button_too(screen: Screen) -> None:
    screen.box.fill("First line")
    screen.box.press("Shift+Enter")
    screen.page.keyboard.type("second line")
    expect(screen.questions).to_have_count(0)
    screen.next_answer("Two lines.")
    screen.button("Send message").click()
    expect(screen.questions).to_contain_text("second line")
    expect(screen.answers).to_contain_text("Two lines.")


def test_a_stopped_answer_keeps_what_had_come(
    screen: Screen, server: Server, slow_url: str
) -> None:
    screen.endless_answer(slow_url)
    screen.ask("Tell me a story about a hedgehog named Bruno.")
    screen.wait_for_words(4)
    expect(screen.log).to_have_attribute("aria-busy", "true")
    seen = _words(screen)
    screen.button("Stop generating").click()
    expect(screen.button("Send message")).to_be_visible()
    assert _words(screen)[: len(seen)] == seen
    server.eventually(lambda: server.stats()["active_requests"] == 0)  # nothing is lost on it
    kept = _words(screen)
    screen.page.reload()
    expect(screen.answers).to_contain_text(" ".join(kept))


def test_a_question_asked_during_an_answer_waits_for_its_end(screen: Screen, slow_url: str) -> None:
    """It can be taken back, and is sent at once where that is wanted."""
    screen.endless_answer(slow_url)
    screen.ask("Tell me a story about a hedgehog named Bruno.")
    screen.wait_for_words()
    screen.ask("What is the capital of Norway?")
    waiting = screen.role("group", "Next question")
    expect(waiting).to_contain_text("Sent after this answer")
    expect(screen.box).to_have_value("")
    waiting.get_by_role("button", name="Edit next question").click()
    expect(screen.box).to_have_value("What is the capital of Norway?")
    screen.box.press("Enter")
    screen.next_answer("Oslo.")
    waiting.get_by_role("button", name="Send now").click()
    expect(screen.answers.last).to_contain_text("Oslo.")
    expect(waiting).to_have_count(0)
    expect(screen.questions).to_have_count(2)


def test_an_address_brings_a_question_and_a_model(screen: Screen, server: Server) -> None:
    """The question is not sent: anybody's page may lead there."""
    screen.page.goto(f"{server.url}/?q=What+is+the+capital+of+France%3F&model=nobody")
    expect(screen.box).to_have_value("What is the capital of France?")
    expect(screen.role("main")).to_contain_text("There is no model nobody here.")
    screen.wait_until_it_runs()
    expect(screen.questions).to_have_count(0)
    screen.box.press("Enter")
    expect(screen.answers).to_contain_text("Paris")
    screen.page.emulate_media(media="print")
    expect(screen.box).to_be_hidden()
    expect(screen.button("New chat")).to_be_hidden()
    expect(screen.answers).to_be_visible()


def _words(screen: Screen) -> list[str]:
    """All but the last one, which may still grow."""
    return screen.answers.get_by_role("paragraph").first.inner_text().split()[:-1]


def test_two_chats_answer_at_once(screen: Screen, slow_url: str) -> None:
    for title in ("The first story", "The second story"):
        screen.button("New chat").click()
        screen.endless_answer(slow_url)
        screen.ask(title)
        screen.wait_for_words()
    for title in ("The first story", "The second story"):
        screen.chat(title).click()
        expect(screen.questions).to_contain_text(title)
        expect(screen.log).to_have_attribute("aria-busy", "true")
        screen.button("Stop generating").click()
        expect(screen.button("Send message")).to_be_visible()


def test_a_chat_that_does_not_exist_is_said(screen: Screen) -> None:
    screen.open("./#/chat/0192f0c1-0000-7000-8000-000000000000")
    expect(screen.role("main")).to_contain_text("This chat does not exist")
    expect(screen.box).to_be_visible()


def test_a_refusal_has_the_servers_words_and_can_be_tried_again(
    screen: Screen, problems: Problems
) -> None:
    problems.expect(REFUSED)
    screen.next_answer(foo=1)
    screen.next_answer("Now it is well.")
    screen.ask("Hello!")
    error = screen.role("alert").filter(has_text="`foo` is not a field that this server knows")
    expect(error).to_be_visible()
    expect(screen.button("Copy details")).to_be_visible()
    screen.button("Try again").click()
    expect(screen.answers).to_contain_text("Now it is well.")
    expect(error).to_have_count(0)


def test_a_question_longer_than_the_context_is_refused(
    device: Device, server: Server, problems: Problems
) -> None:
    problems.expect(REFUSED)
    screen = device()
    screen.box.fill("word " * 12_000)
    screen.button("Send message").click()
    expect(screen.role("alert").filter(has_text=re.compile("context|tokens"))).to_be_visible()


def test_an_overloaded_server_is_asked_once_more_when_it_says(
    screen: Screen, problems: Problems
) -> None:
    """A real overload would be everybody's: the server's own refusal is given in its stead."""
    problems.expect("status of 429")
    body = {"error": {"message": "Too many requests wait", "type": "overloaded", "code": "x"}}
    screen.page.route(
        "**/v1/chat/completions",
        lambda route: route.fulfill(status=429, json=body, headers={"retry-after": "1"}),
        times=1,
    )
    screen.ask("What is the capital of France?")
    expect(screen.answers).to_contain_text("Paris")
    expect(screen.questions).to_have_count(1)


def test_without_a_network_a_draft_can_be_written_and_is_kept(
    screen: Screen, problems: Problems
) -> None:
    problems.expect("ERR_INTERNET_DISCONNECTED|Failed to fetch|ERR_FAILED")
    screen.ask_and_wait("What is the capital of Norway?")
    screen.page.context.set_offline(True)
    expect(
        screen.role("alert").or_(screen.role("status")).filter(has_text="can't be reached").first
    ).to_be_visible()
    expect(screen.answers).to_contain_text("Oslo")
    screen.box.fill("What is the capital of Kenya?")
    expect(screen.button("Try again").first).to_be_visible()
    screen.page.context.set_offline(False)  # the page tries by itself then
    expect(screen.page.get_by_text("can't be reached")).to_have_count(0)
    expect(screen.box).to_have_value("What is the capital of Kenya?")
    screen.box.press("Enter")
    expect(screen.answers.nth(1)).to_contain_text("Nairobi")


def test_nothing_that_is_typed_is_lost(screen: Screen) -> None:
    """Keys come while the page does not know whose chats it shows, and while a question is sent."""
    delayed: list[Route] = []
    screen.page.route("**/ui/api/me", lambda route: delayed.append(route))
    screen.page.reload()
    expect(screen.box).to_be_focused()
    screen.next_answer("Yes.")
    screen.page.keyboard.type("First question?\nand then ")
    expect(screen.button("Stop generating")).to_be_visible()
    expect(screen.box).to_have_value("and then ")
    screen.page.unroute("**/ui/api/me")
    for route in delayed:
        route.continue_()
    screen.page.keyboard.type("this second thing", delay=15)
    expect(screen.answers).to_contain_text("Yes.")
    expect(screen.box).to_have_value("and then this second thing")
    expect(screen.questions).to_have_text("First question?")
    screen.button("New chat").click()
    expect(screen.box).to_have_value("")
    screen.chat("First question?").click()
    expect(screen.box).to_have_value("and then this second thing")


def test_a_question_without_an_answer_is_asked_again(screen: Screen) -> None:
    """The page was closed before the server heard of it, or its answer was deleted."""
    asked: list[Route] = []
    screen.page.route(CHATS, lambda route: asked.append(route))
    screen.ask("What is the capital of Norway?")
    expect(screen.answers).to_be_visible()
    screen.page.reload()
    screen.page.unroute(CHATS)
    screen.chat("What is the capital of Norway?").click()
    screen.button("Ask again").click()
    expect(screen.answers).to_contain_text("Oslo")
    screen.wait_for_end()
    screen.act(screen.answers, "Delete message")
    screen.role("alertdialog").get_by_role("button", name="Delete", exact=True).click()
    expect(screen.answers).to_have_count(0)
    screen.button("Ask again").click()
    expect(screen.answers).to_contain_text("Oslo")
    expect(screen.questions).to_have_count(1)


def test_a_draft_outlives_a_reload(screen: Screen) -> None:
    screen.box.press_sequentially("Half a thought")
    screen.button("New chat").click()
    expect(screen.box).to_have_value("Half a thought")
    screen.page.reload()
    expect(screen.box).to_have_value("Half a thought")


SHOWN = """Look:

```python
print('a')
```

| a | b |
|---|---|
| one<br>two | H<sub>2</sub>O |

$$\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}$$

```mermaid
flowchart LR
Ask --> Tell
```
"""
N_OUTSIDE = """(diagram) => {
    const whole = diagram.querySelector('svg').getBoundingClientRect();
    const nodes = [...diagram.querySelectorAll('.node')];
    const parts = nodes.map((node) => node.getBoundingClientRect());
    return parts.filter(({ left, right }) => left < whole.left || right > whole.right).length;
}"""


def test_code_tables_formulas_and_diagrams_of_an_answer_are_shown_as_such(screen: Screen) -> None:
    screen.next_answer(SHOWN)
    screen.ask("Show me\n\n```js\nlet a\n```\n\n# and so on")
    expect(screen.questions.get_by_role("code")).to_have_text("let a")
    expect(screen.questions).to_contain_text("# and so on")
    screen.wait_for_end()
    expect(screen.answers.get_by_role("cell", name="one two")).to_be_visible()
    expect(screen.answers.get_by_role("subscript")).to_have_text("2")
    expect(screen.answers.get_by_role("code").first).to_contain_text("print('a')")
    expect(screen.answers.get_by_role("math")).to_contain_text("3")
    assert screen.page.evaluate("document.fonts.load('16px KaTeX_Main').then((f) => f.length)")
    diagram = screen.answers.get_by_role("img", name="Diagram")
    expect(diagram).to_contain_text("Tell", timeout=60_000)
    assert diagram.evaluate(N_OUTSIDE) == 0
    screen.act(screen.answers, "Enlarge diagram")
    dialog = screen.role("dialog", "Diagram")
    expect(dialog.get_by_role("img", name="Diagram")).to_be_visible()
    dialog.get_by_role("button", name="Zoom in").click()
    screen.page.keyboard.press("Escape")
    screen.act(screen.answers, "Copy code")
    expect(screen.role("status").filter(has_text="Copied")).to_be_attached()
    screen.box.press("Control+V")
    expect(screen.box).to_have_value(re.compile(r"^print\('a'\)\n?$"))


MUST_NOT = [
    ("console.error('wrong')", "console: wrong"),
    ("setTimeout(() => { throw new Error('thrown') })", "page error: "),
    ("void Promise.reject({ toString: () => 'rejected' })", "not handled: rejected in "),
    ("open('http://127.0.0.1:9/')", "a request to another origin: http://127.0.0.1:9/"),
    ("fetch('http://127.0.0.1:9/').catch(() => 0)", "CSP report: connect-src"),
    (
        "document.head.append(Object.assign(document.createElement('script'), {text: '1'}))",
        "CSP report: script-src",
    ),
    ("setTimeout(() => alert('hello'))", "a dialog: "),  # last: nobody closes it
]


def test_what_a_page_must_not_do_is_found(page: Page, problems: Problems) -> None:
    page.goto("./")
    for does, is_told in MUST_NOT:
        known = len(problems.unexpected())
        page.evaluate(f"() => {{ {does} }}")
        for _ in range(WAIT_MS // 50):
            found = problems.unexpected()[known:]
            if any(is_told in problem for problem in found):
                break
            page.wait_for_timeout(50)
        assert any(is_told in problem for problem in found), does
    problems.expect("")
