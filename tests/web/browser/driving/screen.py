"""The page as a person meets it: by roles and names, which are its contract. Tests ask for nothing
else.
"""

import json
import re
from collections import deque
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Locator, Page, Request, Route, expect

from tests.web.browser.driving.graph import DEMO
from tests.web.browser.driving.page import WAIT_MS

CHATS = "**/v1/chat/completions"
IN_MENU = ("Edit message", "Fork chat", "Delete message")  # of a message
expect.set_options(timeout=WAIT_MS)


class Screen:
    def __init__(self, page: Page) -> None:
        self.page = page
        self._lines: deque[tuple[dict[str, Any], str | None]] | None = None

    # Where

    def open(self, path: str = "./") -> None:
        self.page.goto(path)

    def wait_until_it_runs(self) -> None:
        """The message box is there before, but the page does not hear its keys yet."""
        expect(self.button("New chat")).to_be_visible()

    def role(self, role: Any, name: str | re.Pattern[str] | None = None) -> Locator:
        """Finds what has the role and, if there is a name, the whole name."""
        if name is None:
            return self.page.get_by_role(role)
        return self.page.get_by_role(role, name=name, exact=True)

    def button(self, name: str) -> Locator:
        return self.role("button", name)

    @property
    def box(self) -> Locator:
        return self.role("textbox", "Message")

    @property
    def log(self) -> Locator:
        return self.role("log", "Messages")

    @property
    def questions(self) -> Locator:
        return self.role("article", "You")

    @property
    def answers(self) -> Locator:
        return self.answers_of(DEMO)

    def answers_of(self, model: str) -> Locator:
        return self.role("article", model)

    @property
    def chats(self) -> Locator:
        return self.role("list", "Conversations").get_by_role("listitem")

    def chat(self, title: str) -> Locator:
        return self.role("list", "Conversations").get_by_role("link", name=title, exact=True)

    # What is done

    def ask(self, text: str) -> None:
        self.box.fill(text)
        self.box.press("Enter")

    def ask_and_wait(self, text: str) -> None:
        """Returns when the answer is whole."""
        self.ask(text)
        self.wait_for_answer(text)

    def wait_for_answer(self, question: str) -> None:
        first = question.strip().splitlines()[0]
        expect(self.questions.last).to_contain_text(first)
        expect(self.role("article").last).not_to_have_accessible_name("You")
        self.wait_for_end()

    def sent_by(self, text: str) -> dict[str, Any]:
        """Asks, and returns the body of the request when the answer is whole."""
        with self.page.expect_request(lambda one: bool(_body(one).get("stream"))) as asked:
            self.ask(text)
        self.wait_for_answer(text)
        return _body(asked.value)

    def wait_for_words(self, at_least: int = 2) -> None:
        """Waits for the answer's words. Its article also says that the first are waited for."""
        words = re.compile(r"\w+" + r" \w+" * (at_least - 1))
        expect(self.answers.last.get_by_role("paragraph").first).to_contain_text(words)

    def wait_for_end(self) -> None:
        expect(self.button("Stop generating")).to_have_count(0)
        expect(self.log).not_to_have_attribute("aria-busy", "true")

    def act(self, message: Locator, name: str) -> None:
        """Presses a button of a message. What is seldom needed is in the menu "More actions"."""
        message.hover()
        if name in IN_MENU:
            message.get_by_role("button", name="More actions", exact=True).click()
            self.role("menuitem", name).click()
        else:
            message.get_by_role("button", name=name, exact=True).click()

    def choose_in_chat_menu(self, title: str, item: str) -> None:
        row = self.chats.filter(has=self.page.get_by_role("link", name=title, exact=True))
        row.hover()
        row.get_by_role("button", name=f"Actions for {title}", exact=True).click()
        self.role("menuitem", item).click()

    def open_settings(self, section: str) -> Locator:
        self.button("Settings").click()
        dialog = self.role("dialog", "Settings")
        dialog.get_by_role("tab", name=section, exact=True).click()
        return dialog

    def pick_model(self, name: str) -> None:
        self.role("combobox", "Model").click()
        self.role("listbox", "Models").get_by_role("option", name=name).click()

    # What the model is made to say: the page's request gets fields that constrain the model

    def next_answer(
        self, text: str | None = None, via: str | None = None, **fields: object
    ) -> None:
        """Sets the answer to the next request that has no other yet.

        text: the whole answer. via: the address of the server that is asked, if it is another one.
        """
        if self._lines is None:
            self._lines = deque()
            self.page.route(CHATS, self._constrain)
        if text is not None:
            words = {"structured_outputs": {"choice": [text]}, "reasoning_effort": "none"}
            fields = {**words, **fields}
        self._lines.append((fields, via))

    def next_call(self, name: str, **arguments: str) -> None:
        """The next answer is this call of a tool; the demo model itself calls what it likes."""
        schema = {
            "type": "object",
            "properties": {name: {"enum": [value]} for name, value in arguments.items()},
            "required": list(arguments),
            "additionalProperties": False,
        }
        function = {"name": name, "strict": True, "parameters": schema}
        self.next_answer(
            tools=[{"type": "function", "function": function}],
            tool_choice={"type": "function", "function": {"name": name}},
            parallel_tool_calls=False,
            reasoning_effort="none",
        )

    def endless_answer(self, slow_url: str) -> None:
        """The next one lasts a minute, unless it is stopped.

        The model itself may fill its context within seconds. slow_url: of a slow proxy before it.
        """
        self.next_answer(via=slow_url, ignore_eos=True, temperature=0)

    def _constrain(self, route: Route) -> None:
        body = _body(route.request)
        if not self._lines or not body.get("stream"):
            route.continue_()
            return
        fields, via = self._lines.popleft()
        if "structured_outputs" in fields and "tools" in body:
            fields["tool_choice"] = "none"
        url = None if via is None else f"{via}{urlsplit(route.request.url).path}"
        route.continue_(url=url, post_data=json.dumps({**body, **fields}))


def _body(request: Request) -> dict[str, Any]:
    """Returns the body of a chat's request, and {} of any other one."""
    if not request.url.endswith("/v1/chat/completions"):
        return {}
    body: dict[str, Any] = json.loads(request.post_data or "{}")
    return body
