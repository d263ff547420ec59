"""Each screen of the page, as tests and pictures show it."""

import re
from collections.abc import Callable
from typing import Any, Literal

from playwright.sync_api import expect

from tests.web.browser.driving.device import Device
from tests.web.browser.driving.screen import Screen

THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
WIDTHS = (1280, 390)
HEIGHT = {1280: 800, 390: 844}
CODE = """A page table maps the pages of a sequence to places in the cache:

1. The engine asks for a page when a sequence grows.
2. Pages that several sequences share are **counted**.
3. A page that nobody uses any more is free.

```python
def address(table: list[int], position: int, page_size: int) -> int:
    return table[position // page_size] * page_size + position % page_size
```

| page size | pages of 1,000 tokens |
|---|---|
| 16 | 63 |
| 64 | 16 |
"""


HAIKU = """Grey waves fold and fold,\\
the gull writes one line of white,\\
evening reads it twice."""


def _device(device: Device, width: int, *, signed_in: bool = True) -> Screen:
    options: dict[str, Any] = {"width": width, "height": HEIGHT[width], "has_touch": width < 500}
    if not signed_in:
        return device(None, **options)
    screen = device(**options)
    expect(screen.box).to_be_visible()
    return screen


def empty(device: Device, width: int) -> Screen:
    screen = _device(device, width)
    expect(screen.role("list", "Starters")).to_be_visible()
    return screen


def chat(device: Device, width: int) -> Screen:
    screen = _device(device, width)
    for question, answer in (
        ("Name three capitals of the north.", "Oslo, Helsinki and Reykjavik."),
        (
            "A haiku about the sea",
            HAIKU,
        ),
    ):
        screen.next_answer(answer)
        screen.ask_and_wait(question)
        screen.page.keyboard.press("Control+Shift+O")
        expect(screen.role("article")).to_have_count(0)
    screen.next_answer(CODE)
    screen.ask_and_wait("What is a page table?")
    if width == WIDTHS[0]:  # there the sidebar says so
        expect(screen.role("status", "Sync")).to_contain_text("Synced")
    return screen


def picker(device: Device, width: int) -> Screen:
    screen = _device(device, width)
    screen.role("combobox", "Model").click()
    expect(screen.role("listbox", "Models").get_by_role("option").first).to_be_visible()
    return screen


def settings(device: Device, width: int) -> Screen:
    screen = _device(device, width)
    screen.open("./#/settings/sampling")
    expect(
        screen.role("dialog", "Settings").get_by_label("Temperature", exact=True)
    ).to_be_visible()
    return screen


def fleet(device: Device, width: int) -> Screen:
    """Shows the fleet while another device gets an answer, so that there is something to see."""
    asking, screen = _device(device, width), _device(device, width)
    screen.open("./#/fleet")
    expect(screen.role("table", "Models").get_by_role("row").nth(1)).to_be_visible()
    asking.next_answer(CODE)
    asking.ask_and_wait("What is a page table?")
    first = re.compile(r"^Time to the first token, .* now (?!nothing)")
    expect(screen.page.get_by_role("img", name=first)).to_be_visible()
    return screen


def sign_in(device: Device, width: int) -> Screen:
    screen = _device(device, width, signed_in=False)
    expect(screen.role("heading", "Sign in")).to_be_visible()
    return screen


def error(device: Device, width: int) -> Screen:
    screen = _device(device, width)
    screen.next_answer(temperature=9)
    screen.ask("What is a page table?")
    expect(screen.role("alert")).to_be_visible()
    return screen


SCREENS: dict[str, Callable[[Device, int], Screen]] = {
    "chat": chat,
    "empty": empty,
    "picker": picker,
    "settings": settings,
    "fleet": fleet,
    "sign-in": sign_in,
    "error": error,
}
