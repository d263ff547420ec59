"""A person's own MCP server: the model may use its tools, and the box takes what it offers."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial

import pytest
from playwright.sync_api import expect

from tests.e2e.server import Server
from tests.web.browser.driving.harbour import HOURS, RESOURCE, TOKEN, Harbour, open_harbour
from tests.web.browser.driving.page import Problems
from tests.web.browser.driving.screen import Screen

TOOL = "Harbour_read_tide"
PLACE = "Bergen"
OFFERS = "1 tool, 1 resource, 1 prompt"
Starting = AbstractContextManager[Harbour]


@pytest.fixture
def start(server: Server, mcp_port: int, problems: Problems) -> Callable[[], Starting]:
    origin = f"http://127.0.0.1:{mcp_port}"
    problems.expect(f"request to another origin: {re.escape(origin)}/mcp$")
    return partial(open_harbour, mcp_port, server.url)


@pytest.fixture
def harbour(start: Callable[[], Starting]) -> Iterator[Harbour]:
    with start() as started:
        yield started


def add(screen: Screen, address: str, token: str, says: str) -> None:
    """Adds an MCP server in the settings, which are left open."""
    dialog = screen.open_settings("Tools")
    dialog.get_by_role("button", name="Add an MCP server", exact=True).click()
    for name, value in (("Name", "Harbour"), ("Address", address), ("Token", token)):
        dialog.get_by_role("textbox", name=name, exact=True).fill(value)
    dialog.get_by_role("button", name="Add", exact=True).click()
    expect(dialog.get_by_role("listitem").filter(has_text=address)).to_contain_text(says)


def test_its_tool_is_called_when_the_call_is_allowed(screen: Screen, harbour: Harbour) -> None:
    add(screen, harbour.url, TOKEN, OFFERS)
    screen.page.keyboard.press("Escape")
    screen.next_call(TOOL, place=PLACE)
    screen.next_answer("It rises.")
    screen.ask("How is the tide?")
    allow = screen.role("group", f"Tool call {TOOL}").get_by_role(
        "button", name="Allow once", exact=True
    )
    expect(allow).to_be_visible()
    assert harbour.calls == []
    allow.click()
    expect(screen.log).to_contain_text("It rises.")
    assert harbour.calls == [PLACE]
    expect(screen.log).to_contain_text(f"2.4 m at {PLACE}")
    screen.wait_for_end()
    body = screen.sent_by("Thank you")
    assert [tool["function"]["name"] for tool in body["tools"]] == [TOOL]


def test_its_prompt_and_its_resource_are_put_into_the_box(
    screen: Screen, start: Callable[[], Starting], problems: Problems
) -> None:
    """A server that was started anew has forgotten the page's session, and gets another one."""
    problems.expect("status of 404")
    with start() as harbour:
        add(screen, harbour.url, TOKEN, OFFERS)
        screen.page.keyboard.press("Escape")
        dialog = screen.role("dialog", "From MCP servers")
        screen.button("Add from MCP servers").click()
        dialog.get_by_role("button", name="Plan a day").click()
        dialog.get_by_role("textbox", name="place", exact=True).fill(PLACE)
        dialog.get_by_role("button", name="Use it", exact=True).click()
        expect(screen.box).to_have_value(f"Plan a day at {PLACE}.")
    with start():
        screen.button("Add from MCP servers").click()
        dialog.get_by_role("button", name=RESOURCE).click()
        expect(screen.role("list", "Attachments")).to_contain_text(RESOURCE)
        body = screen.sent_by(screen.box.input_value())
    asked = str(body["messages"][-1]["content"])
    assert f"Plan a day at {PLACE}." in asked
    assert HOURS in asked


def test_why_it_can_not_be_asked_is_said(
    screen: Screen, harbour: Harbour, problems: Problems
) -> None:
    problems.expect("status of 401")
    add(screen, "https://elsewhere.example/mcp", "", says="`connect_origins` of `web`")
    screen.page.keyboard.press("Escape")
    add(screen, harbour.url, "of another", says="It asks for another token.")
    screen.role("textbox", "Token of Harbour").fill(TOKEN)
    screen.page.keyboard.press("Enter")
    expect(screen.role("dialog", "Settings")).to_contain_text(OFFERS)
