"""Text of a model or a file is a stranger's: nothing of it runs, and it loads nothing."""

import json
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.e2e.server import Server
from tests.effort import tries
from tests.web.browser.driving.device import Device
from tests.web.browser.driving.screen import Screen
from tests.web.browser.test_attachments import attach

ELSEWHERE = "http://127.0.0.1:9"
RUN = "window.pwned=1"
MARKUP = (
    f"<script>{RUN}</script>",
    f'<img src=x onerror="{RUN}">',
    f'<svg onload="{RUN}"><script>{RUN}</script></svg>',
    f'<svg><a href="javascript:{RUN}"><text>x</text></a></svg>',
    f'<svg><style><img title="</style><img src=x onerror={RUN}>"></style></svg>',
    f"<math><mtext><table><mglyph><style><img src=x onerror={RUN}></style></mglyph></table></mtext>"
    "</math>",
    f"</textarea></title></style><script>{RUN}</script>",
    f'<a href="javascript:{RUN}" style="position:fixed;inset:0">here</a>',
    f'<p style="background:url({ELSEWHERE}/css)">styled</p>',
    f"<style>@import '{ELSEWHERE}/a.css'; body {{ display: none }}</style>",
    f"<form action={ELSEWHERE}/><button>send</button></form>",
    '<iframe srcdoc="<script>parent.pwned=1</script>"></iframe>',
    f"<base href={ELSEWHERE}/><link rel=stylesheet href={ELSEWHERE}/a.css>",
    f'<meta http-equiv="refresh" content="0;url={ELSEWHERE}/">',
    f"<object data={ELSEWHERE}/o></object><embed src={ELSEWHERE}/e>",
    f"<video src={ELSEWHERE}/v autoplay onerror={RUN}></video>",
)
MARKDOWN = (
    f"[a](javascript:{RUN})",
    f"[b](data:text/html,<script>{RUN}</script>)",
    f"[c](JaVaScRiPt&#58;{RUN})",
    f"<javascript:{RUN}>",
    f"[d][x]\n\n[x]: vbscript:{RUN}",
    f"![e]({ELSEWHERE}/picture.png)",
    f'![f](x" onerror="{RUN})',
    f'[g](https://example.com "x\\" onmouseover=\\"{RUN}")',
    f"`<img src=x onerror={RUN}>`",
    f"```html\n<img src=x onerror={RUN}>\n```",
)
FORMULAS = (
    f"$\\href{{javascript:{RUN}}}{{x}}$",
    f"$\\url{{javascript:{RUN}}}$",
    f"$\\htmlStyle{{background:url({ELSEWHERE}/k)}}{{x}}$",
    f"$\\includegraphics{{{ELSEWHERE}/p.png}}$",
)
DIAGRAM = (
    "```mermaid\ngraph TD\n"
    f'A["<img src=x onerror={RUN}>"] <--> B["two<br>lines<script>{RUN}</script>"]\n'
    f'click A "javascript:{RUN}"\nclick B call alert(1)\n```'
)
ALL = "\n\n".join((*MARKUP, *MARKDOWN, *FORMULAS, DIAGRAM, "The end."))
SHARE = tries(4, 1)  # of what is streamed; whole it is in the tests below
NAME = f'<img src=x onerror="{RUN}">'
# What only a stranger could have brought among the messages.
FOREIGN = (
    "script, iframe, object, embed, form, base, link, meta, style:not(svg style), video, "
    "[onerror], [onload], [onclick], [onmouseover], img:not([src^='blob:']):not([src^='data:'])"
)


def check_inert(page: Page) -> None:
    """Beside this a page's own watch finds dialogs, reports and requests to others."""
    log = page.get_by_role("log", name="Messages")
    assert log.locator(FOREIGN).count() == 0
    for link in log.get_by_role("link").all():
        href = link.get_attribute("href") or ""
        assert href.startswith(("http://", "https://", "mailto:", "#", "blob:")), href
        if href.startswith("http"):
            assert "noopener" in (link.get_attribute("rel") or "")
    assert page.evaluate("window.pwned") is None


@pytest.mark.parametrize(
    "said",
    [
        pytest.param("\n\n".join(MARKUP[::SHARE]), id="markup"),
        pytest.param("\n\n".join((*MARKDOWN, *FORMULAS)[::SHARE]), id="markdown"),
        pytest.param(DIAGRAM, id="diagram", marks=pytest.mark.exhaustive),
    ],
)
def test_a_streamed_answer_is_inert(screen: Screen, said: str) -> None:
    """Token by token, so that its tags come in pieces."""
    screen.next_answer(f"{said}\n\nThe end.")
    screen.ask("Say it")
    expect(screen.answers).to_contain_text("The end.", timeout=60_000)
    screen.wait_for_end()
    check_inert(screen.page)


def test_what_the_person_writes_is_inert_in_messages_and_titles(screen: Screen) -> None:
    screen.next_answer("One.")
    screen.ask_and_wait(NAME)
    screen.next_answer("Two.")
    screen.act(screen.questions, "Edit message")
    screen.role("textbox", "Edit message").fill(ALL)
    screen.button("Save as new branch").click()
    expect(screen.questions).to_contain_text("The end.")
    expect(screen.answers).to_contain_text("Two.")
    expect(screen.chat(NAME)).to_be_visible()
    check_inert(screen.page)


def test_a_files_name_and_content_are_inert(screen: Screen, tmp_path: Path) -> None:
    path = tmp_path / "<img src=x onerror=pwned=1>.svg"
    path.write_text(
        f"<svg xmlns='http://www.w3.org/2000/svg' onload='{RUN}'><script>{RUN}</script></svg>"
    )
    text = tmp_path / "<svg onload=pwned=1>.txt"
    text.write_text(ALL)
    attach(screen, path, text)
    expect(screen.role("list", "Attachments")).to_contain_text("onload")
    check_inert_anywhere(screen.page)


def check_inert_anywhere(page: Page) -> None:
    assert page.locator("[onerror], [onload]").count() == 0
    assert page.evaluate("window.pwned") is None


def _id(number: int) -> str:
    return f"0192f0c1-0000-7000-8000-{number:012}"


def lines() -> dict[str, object]:
    """A chat with all of it in every place."""
    chat = _id(1)
    ids = [_id(10 + number) for number in range(4)]
    common = {"attachments": [], "created_at": 1_760_000_000_000}
    call = {"id": "call-1", "name": NAME, "arguments": json.dumps({"path": ALL})}
    attachment = {
        "name": NAME,
        "type": "text/html",
        "size": 3,
        "sha256": "0" * 64,
        "as": "text",
    }
    messages = [
        {
            **common,
            "id": ids[0],
            "parent": None,
            "role": "user",
            "text": ALL,
            "attachments": [attachment],
        },
        {
            **common,
            "id": ids[1],
            "parent": ids[0],
            "role": "assistant",
            "text": ALL,
            "reasoning": ALL,
            "model": NAME,
            "tool_calls": [call],
            "finish": "tool_calls",
        },
        {
            **common,
            "id": ids[2],
            "parent": ids[1],
            "role": "tool",
            "text": ALL,
            "tool_call_id": "call-1",
        },
        {
            **common,
            "id": ids[3],
            "parent": ids[2],
            "role": "assistant",
            "text": "The very end.",
            "model": NAME,
            "finish": "stop",
        },
    ]
    fields = {
        "id": chat,
        "title": NAME,
        "title_by": "person",
        "leaf": ids[3],
        "pinned": False,
        "model": NAME,
        "system": ALL,
        "settings": {"sampling": {}, "thinking": {}},
        "created_at": 1_760_000_000_000,
        "updated_at": 1_760_000_000_000,
    }
    return {"chat": fields, "messages": messages}


def read(screen: Screen) -> None:
    """All that is folded is unfolded."""
    screen.role("list", "Conversations").get_by_role("link", name=NAME).click()
    expect(screen.log).to_contain_text("The very end.")
    for name in ("Thought", f"Tool call {NAME}"):
        for button in screen.log.get_by_role("button", name=name).all():
            if button.get_attribute("aria-expanded") == "false":
                button.click()
    diagram = screen.log.get_by_role("img", name="Diagram").first
    expect(diagram).to_contain_text("<img", timeout=60_000)  # drawn, its labels as they are written
    check_inert(screen.page)
    check_inert_anywhere(screen.page)


def test_an_imported_chat_is_inert(screen: Screen, tmp_path: Path) -> None:
    path = tmp_path / "chats.jsonl"
    path.write_text(json.dumps(lines()) + "\n")
    dialog = screen.open_settings("Data")
    with screen.page.expect_file_chooser() as chosen:
        dialog.get_by_role("button", name="Import chats").click()
    chosen.value.set_files(path)
    expect(dialog.get_by_role("status").filter(has_text="added")).to_be_visible()
    screen.page.keyboard.press("Escape")
    read(screen)


@pytest.mark.exhaustive  # what is shown is what was imported above
def test_a_chat_of_another_device_is_inert(device: Device, server: Server, key: str) -> None:
    brought = lines()
    fields = dict(brought["chat"])  # type: ignore[call-overload]
    where = f"{server.url}/ui/api/chats/{fields.pop('id')}"
    headers = {"authorization": f"Bearer {key}"}
    put = httpx.put(where, json=fields, headers={**headers, "if-none-match": "*"})
    assert put.status_code == 200, put.text
    posted = httpx.post(
        f"{where}/messages", json={"messages": brought["messages"]}, headers=headers
    )
    assert posted.status_code == 200, posted.text
    read(device())
