"""How long the chat page takes to open, and how smoothly it shows an answer.

    python -m tests.bench.page [--rounds 5]

The built page of this checkout in Chromium, the store of a real server, loopback. The answers come
from a proxy that sends 200 tokens a second, as a small model on two cores does not.
"""

import argparse
import itertools
import json
import statistics
import tempfile
import time
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, expect, sync_playwright
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.web.browser.driving.chromium import ARGUMENTS, find_chromium
from tests.web.browser.driving.device import devices
from tests.web.browser.driving.graph import DEMO, N_KEYS, key_of, running
from tests.web.browser.driving.page import Problems
from tests.web.browser.driving.proxy import proxied
from tests.web.browser.driving.screen import Screen

N_MESSAGES = 1000
A_POST = 100  # messages
TOKENS_A_S = 200
N_TOKENS = 2000
LENGTHY = "Tell me everything"  # the question that gets so many
N_LENGTHY = 20_000
PART = 1000  # tokens of it, whose cost is compared
N_CHATS = 10_000
PARAGRAPH = (
    "The page table maps each **page** of a sequence to its slot in the cache, so that `n` tokens "
    "take as many pages as they need: *no more*, and [none is copied](https://example.com).\n\n"
)
LIST = "".join(f"- point {point} with a few words of its own\n" for point in range(8))
TEXT = PARAGRAPH * 2 + LIST + "\n```python\nfor page in table:\n    read(page)\n```\n\n" + PARAGRAPH
WHEN_THE_COMPOSER_TAKES_TEXT = """
new MutationObserver((_, observer) => {
    if (document.querySelector('textarea#message:enabled')) {
        window.composerAt = performance.now();
        observer.disconnect();
    }
}).observe(document, {childList: true, subtree: true, attributes: true});
"""
OPEN = """async (link) => {
    const frame = () => new Promise(requestAnimationFrame);
    const start = performance.now();
    link.click();
    while (!document.querySelector('[role=log] article')) await frame();
    await frame();
    const painted = performance.now();
    await frame();
    return {paint: painted - start, next: performance.now() - painted};
}"""
WATCH = """() => {
    window.frames_ = [];
    window.longest = 0;
    window.watching = true;
    new PerformanceObserver((list) => {
        const times = list.getEntries().map((one) => one.duration);
        window.longest = Math.max(window.longest, ...times);
    }).observe({type: 'longtask'});
    let last = performance.now();
    const next = (now) => {
        window.frames_.push(now - last);
        last = now;
        if (window.watching) requestAnimationFrame(next);
    };
    requestAnimationFrame(next);
}"""
WATCHED = (
    "() => { window.watching = false; return {frames: window.frames_, longest: window.longest}; }"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    table = Table("what", "measured", "limit")
    with (
        tempfile.TemporaryDirectory() as folder,
        sync_playwright() as playwright,
        running(Path(folder)) as server,
        proxied(server.url, answers=answer_at_a_pace) as url,
    ):
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(ARGUMENTS))
        cold, warm = first_loads(browser, url, rounds)
        table.add_row("first load until the composer takes text, cold", ms(cold), "1,000 ms")
        table.add_row("the same, warm", ms(warm), "300 ms")
        key = key_of(N_KEYS - 2)
        store_long_chat(url, key)
        with devices(browser, url, Problems(url), key) as device:
            screen = device()
            expect(screen.chats).to_have_count(1)
            opened = open_long_chat(screen)
            table.add_row(f"{N_MESSAGES:,} messages, first paint", ms(opened["paint"]), "300 ms")
            table.add_row("the next frame after it", ms(opened["next"]), "50 ms")
            frames, longest = stream(screen)
            p95 = statistics.quantiles(frames, n=100)[94]
            what = f"{N_TOKENS:,} tokens at {TOKENS_A_S} a second beside them: "
            table.add_row(f"{what}p95 of frames", f"{p95:.1f} ms", "20 ms")
            table.add_row(f"{what}longest task", ms(longest), "50 ms")
        with devices(browser, url, Problems(url), key_of(N_KEYS - 3)) as device:
            costs = costs_of_parts(device())
            ratio = f"{costs[-1] / costs[0]:.2f}"
            table.add_row(f"{N_LENGTHY:,} tokens: the last {PART:,} beside the first", ratio, "2")
        with devices(browser, url, Problems(url), key_of(N_KEYS - 4)) as device:
            heap = heap_of_many_chats(device(), Path(folder))
            table.add_row(f"{N_CHATS:,} chats: JavaScript's heap", f"{heap:,.0f} MB", "150 MB")
        browser.close()
    Console(width=120).print(table)


def ms(value: float) -> str:
    return f"{value:,.0f} ms"


def first_loads(browser: Browser, url: str, rounds: int) -> tuple[float, float]:
    """Medians, of new browsers' first load and of their second one."""
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        with devices(browser, url, Problems(url), key_of(number)) as device:
            page = device().page
            page.context.add_init_script(WHEN_THE_COMPOSER_TAKES_TEXT)
            page.context.new_cdp_session(page).send("Network.clearBrowserCache")
            for found in times:
                page.reload()
                Screen(page).wait_until_it_runs()
                found.append(page.evaluate("window.composerAt"))
    cold, warm = (statistics.median(found) for found in times)
    return cold, warm


def store_long_chat(url: str, key: str) -> None:
    """Stores a long chat, as another device would have."""
    chat, now = _id(), int(time.time() * 1000)
    ids = [_id() for _ in range(N_MESSAGES)]
    fields = chat_fields("A long chat", ids[-1])
    messages: list[dict[str, object]] = [
        {
            "id": ids[at],
            "parent": ids[at - 1] if at else None,
            "role": "assistant" if at % 2 else "user",
            "text": TEXT if at % 2 else "What is a page table, once more?",
            "attachments": [],
            "created_at": now + at,
            **({"model": DEMO, "finish": "stop"} if at % 2 else {}),
        }
        for at in range(N_MESSAGES)
    ]
    headers = {"authorization": f"Bearer {key}"}
    path = f"/ui/api/chats/{chat}"
    with httpx.Client(base_url=url, headers=headers, timeout=60) as http:
        http.put(path, json=fields, headers={"if-none-match": "*"}).raise_for_status()
        for at in range(0, N_MESSAGES, A_POST):
            body = {"messages": messages[at : at + A_POST]}
            http.post(f"{path}/messages", json=body).raise_for_status()


def chat_fields(title: str, leaf: str) -> dict[str, object]:
    now = int(time.time() * 1000)
    return {
        "title": title,
        "title_by": "person",
        "leaf": leaf,
        "pinned": False,
        "model": DEMO,
        "system": "",
        "settings": {"sampling": {}, "thinking": {}},
        "created_at": now,
        "updated_at": now,
    }


def _id() -> str:
    """UUIDv7's form."""
    at = int(time.time() * 1000)
    return str(uuid.UUID(int=at << 80 | 7 << 76 | 2 << 62 | uuid.uuid4().int & (1 << 62) - 1))


def open_long_chat(screen: Screen) -> dict[str, float]:
    link = screen.chat("A long chat")
    expect(link).to_be_visible()
    expect(screen.role("status", "Sync")).to_contain_text("Synced")
    times: dict[str, float] = link.evaluate(OPEN)
    expect(screen.role("article").last).to_be_visible()
    return times


def stream(screen: Screen) -> tuple[list[float], float]:
    """Milliseconds of each frame, and of the longest task, while an answer comes."""
    page: Page = screen.page
    page.evaluate(WATCH)
    screen.ask("Tell me more")
    expect(screen.button("Stop generating")).to_be_visible()
    expect(screen.button("Stop generating")).to_have_count(0, timeout=120_000)
    found = page.evaluate(WATCHED)
    return found["frames"], found["longest"]


def costs_of_parts(screen: Screen) -> list[float]:
    """Seconds of the main thread's tasks while each part of a long answer comes."""
    session = screen.page.context.new_cdp_session(screen.page)
    session.send("Performance.enable")

    def task_s() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(
            next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")
        )

    screen.ask(LENGTHY)
    expect(screen.button("Stop generating")).to_be_visible()
    began, times = time.monotonic(), [task_s()]
    for part in track(range(1, N_LENGTHY // PART + 1), "a long answer"):
        time.sleep(max(0.0, began + part * PART / TOKENS_A_S - time.monotonic()))
        times.append(task_s())
    expect(screen.button("Stop generating")).to_have_count(0, timeout=120_000)
    return [after - before for before, after in itertools.pairwise(times)]


def heap_of_many_chats(screen: Screen, folder: Path) -> float:
    """Megabytes in use with so many chats in the list, after a collection."""
    path = folder / "chats.jsonl"
    with path.open("w") as lines:
        for number in range(N_CHATS):
            leaf, now = _id(), int(time.time() * 1000)
            message: dict[str, object] = {"id": leaf, "parent": None, "role": "user"}
            message |= {"text": "Hello", "attachments": [], "created_at": now}
            chat = {"id": _id(), **chat_fields(f"Chat number {number} of many", leaf)}
            lines.write(json.dumps({"chat": chat, "messages": [message]}) + "\n")
    dialog = screen.open_settings("Data")
    with screen.page.expect_file_chooser() as chosen:
        dialog.get_by_role("button", name="Import chats").click()
    chosen.value.set_files(path)
    screen.page.keyboard.press("Escape")
    listed = screen.page.locator(f"[aria-setsize='{N_CHATS}']").first
    expect(listed).to_be_visible(timeout=300_000)
    session = screen.page.context.new_cdp_session(screen.page)
    session.send("HeapProfiler.collectGarbage")
    return float(session.send("Runtime.getHeapUsage")["usedSize"]) / 1e6


def answer_at_a_pace(request: BaseHTTPRequestHandler) -> bool:
    if request.command != "POST" or not request.path.endswith("/v1/chat/completions"):
        return False
    body = request.rfile.read(int(request.headers.get("content-length", 0)))
    request.send_response(200)
    request.send_header("content-type", "text/event-stream")
    request.end_headers()
    for event in events(N_LENGTHY if LENGTHY.encode() in body else N_TOKENS):
        request.wfile.write(f"data: {event}\n\n".encode())
        request.wfile.flush()
    return True


def events(n_tokens: int) -> Iterator[str]:
    """Chunks of OpenAI's form, each with one word of markdown."""
    words = (TEXT * (n_tokens // len(TEXT.split(" ")) + 1)).split(" ")[:n_tokens]
    began = time.monotonic()
    for at, word in enumerate(words):
        time.sleep(max(0.0, began + at / TOKENS_A_S - time.monotonic()))
        yield _chunk({"content": f"{word} "}, None)
    yield _chunk({}, "stop")
    yield "[DONE]"


def _chunk(delta: dict[str, str], finish: str | None) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": DEMO}
    return json.dumps({**chunk, "choices": [choice]})


if __name__ == "__main__":
    main()
