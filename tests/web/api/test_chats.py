"""Chats and messages through `/ui/api`."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.databases import sqlite_url
from tests.store.talking import CHAT, identifier
from tests.web.api.serving import NEW, Api, chat_body, error_of, message_body, served

MISSING = identifier(0xFFFF)
WHOLE_CHAT: dict[str, Any] = {
    "title": "Grammar für SQL \u2028 \U0001f642",
    "title_by": "person",
    "leaf": identifier(2),
    "pinned": True,
    "model": "qwen3-8b",
    "system": "Be brief.\n\0",
    "settings": {"sampling": {"temperature": 0.7, "stop": ["a", "ü"]}, "thinking": {"budget": 512}},
    "forked_from": identifier(7),
    "created_at": 1795590025123,
    "updated_at": 1795590025124,
}
WHOLE_MESSAGE: dict[str, Any] = {
    "id": identifier(2),
    "parent": identifier(1),
    "role": "assistant",
    "text": "Text with \0, \U0001f642 and </script>",
    "reasoning": "Hm",
    "tool_calls": [{"id": "call_1", "name": "get_datetime", "arguments": '{"tz": "'}],
    "tool_call_id": "call_0",
    "attachments": [
        {"name": "a.txt", "type": "text/plain", "size": 3, "sha256": "0" * 64, "as": "text"}
    ],
    "model": "qwen3-8b",
    "params": {"seed": 2**53 - 1, "temperature": 0.1},
    "usage": {"prompt_tokens": 1, "completion_tokens": 2, "cached_tokens": 0},
    "timings": {"predicted_per_second": 31.4},
    "finish": "tool_calls",
    "error": {"title": "Overloaded", "message": "later", "retry_at": 1},
    "completion_id": "chatcmpl-1",
    "created_at": 1795590025125,
}


async def changes(api: Api, query: str = "") -> Any:
    answer = await api.get(f"/changes?{query}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_everything_comes_back_as_it_was_written(url: str) -> None:
    async def run() -> None:
        async with served(url) as api:
            first = await api.add_chat(**WHOLE_CHAT)
            added = await api.add(message_body(1), WHOLE_MESSAGE)
            found = await changes(api)
            assert found["revision"] == added.json()["revision"] == first + 2
            (chat,), (question, answer) = found["chats"], found["messages"]
            assert chat == {**WHOLE_CHAT, "id": CHAT, "revision": first}
            assert answer == {**WHOLE_MESSAGE, "chat": CHAT, "revision": first + 2}
            assert added.json()["missing_files"] == ["0" * 64]
            assert (question["parent"], question["attachments"]) == (None, [])
            line = json.loads((await api.get("/export")).text)
            assert line == {"chat": chat, "messages": [question, answer]}

    asyncio.run(run())


def test_a_chat_that_changed_meanwhile_is_refused_and_sent_back(url: str) -> None:
    async def run() -> None:
        async with served(url) as api:
            first = await api.add_chat()

            async def put(title: str, **headers: str) -> Any:
                sent = {name.replace("_", "-"): value for name, value in headers.items()}
                body = chat_body(title=title)
                return await api.ask("PUT", f"/chats/{CHAT}", json=body, headers=sent)

            second = await put("Second", if_match=f'"{first}"')
            assert second.json() == {"revision": first + 1}
            late = await put("Third", if_match=f'"{first}"')
            assert (late.status_code, error_of(late)["type"]) == (412, "stale_error")
            assert late.json()["chat"] == (await changes(api))["chats"][0]
            assert (await put("Third", if_none_match="*")).status_code == 412
            # The answer to a write may be lost: who repeats it changes nothing.
            assert (await put("Second", if_match=f'"{first}"')).json() == second.json()
            other = await api.ask(
                "PUT", f"/chats/{MISSING}", json=chat_body(), headers={"if-match": '"1"'}
            )
            assert (other.status_code, other.json()["chat"]) == (412, None)
            assert (await put("Third")).status_code == 428

    asyncio.run(run())


def test_what_was_deleted_stays_deleted(url: str) -> None:
    async def run() -> None:
        async with served(url) as api:
            await api.add_chat()
            await api.add(message_body(1), message_body(2, 1), message_body(3, 2), message_body(4))
            since = (await changes(api))["next"]
            for _ in range(2):  # also when it is gone
                gone = await api.ask("DELETE", f"/chats/{CHAT}/messages/{identifier(2)}")
                assert (gone.status_code, gone.content) == (204, b"")
            found = await changes(api, f"since={since}")
            assert {message["id"] for message in found["messages"]} == {
                identifier(2),
                identifier(3),
            }
            assert all(
                message["deleted_at"] and "text" not in message for message in found["messages"]
            )
            assert (await api.add(message_body(2, 1))).status_code == 200
            below = await api.add(message_body(1), message_body(5, 3))
            assert (below.status_code, error_of(below)["param"]) == (410, "messages[1].parent")
            for _ in range(2):
                assert (await api.ask("DELETE", f"/chats/{CHAT}")).status_code == 204
            assert (await api.ask("DELETE", f"/chats/{MISSING}")).status_code == 204
            (tombstone,) = (await changes(api, f"since={found['next']}"))["chats"]
            assert tombstone.keys() == {"id", "deleted_at", "revision"}
            assert (await api.add(message_body(1))).status_code == 404
            again = await api.ask("PUT", f"/chats/{CHAT}", json=chat_body(), headers=NEW)
            assert (again.status_code, error_of(again)["type"]) == (410, "gone_error")
            assert (await api.get("/export")).text == ""

    asyncio.run(run())


def test_messages_are_stored_all_or_none_and_never_change(url: str) -> None:
    async def run() -> None:
        async with served(url) as api:
            assert (await api.add(message_body(1))).status_code == 404
            revision = await api.add_chat()
            orphan = await api.add(message_body(1), message_body(2, 9))
            assert (orphan.status_code, error_of(orphan)["param"]) == (400, "messages[1].parent")
            assert (await changes(api))["revision"] == revision
            await api.add(message_body(1))
            other = await api.add(message_body(2, 1), message_body(1, text="Other"))
            assert (other.status_code, error_of(other)["param"]) == (409, "messages[1]")
            again = await api.add(message_body(1))
            assert again.json() == {"revision": revision + 1, "missing_files": []}
            of_another = await api.ask("PUT", f"/chats/{MISSING}", json=chat_body(), headers=NEW)
            assert of_another.status_code == 200
            stranger = await api.add(message_body(2, 1), chat=MISSING)
            assert stranger.status_code == 400

    asyncio.run(run())


def test_writers_at_once_lose_nothing_and_each_hears_of_all(url: str) -> None:
    async def device(api: Api, number: int) -> None:
        """Writes five messages one by one, and sees its own in what changed meanwhile."""
        since = "0"
        for index in range(5):
            body = message_body(1 + 10 * number + index)
            assert (await api.add_when_allowed(body)).status_code == 200
            page = await changes(api, f"since={since}")
            since = page["next"]
            assert body["id"] in {message["id"] for message in page["messages"]}

    async def run() -> None:
        async with served(url) as api:
            await api.add_chat()
            await asyncio.gather(*[device(api, number) for number in range(4)])
            found = (await changes(api))["messages"]
            assert len({message["revision"] for message in found}) == len(found) == 20

    asyncio.run(run())


def test_a_page_goes_on_where_the_last_one_ended(url: str) -> None:
    async def run() -> None:
        async with served(url) as api:
            await api.add_chat()
            await api.add(*[message_body(n) for n in range(1, 6)])
            since, ids = "0", []
            while True:
                page = await changes(api, f"since={since}&limit=2")
                assert page["revision"] == 6
                ids += [chat["id"] for chat in page["chats"]] + [
                    message["id"] for message in page["messages"]
                ]
                since = page["next"]
                if not page["more"]:
                    break
            newest_first = [identifier(n) for n in (4, 5, 2, 3)]
            assert ids == [*newest_first, CHAT, identifier(1)]
            assert since == "6"
            old = await api.get("/changes?since=7")
            assert (old.status_code, error_of(old)["param"]) == (410, "since")

    asyncio.run(run())


@pytest.mark.parametrize("others", [False, True])
def test_who_waits_for_changes_hears_of_them(url: str, others: bool) -> None:
    """Writes of another process count too: the server looks for them again and again."""

    async def run() -> None:
        async with served(url) as api, served(url) as other:
            api.opener.store.waits._look_s = 0.01
            await api.add_chat()
            since = (await changes(api))["next"]
            waits = asyncio.create_task(changes(api, f"since={since}&wait=30"))
            await api.until_waiting(1)
            await (other if others else api).add(message_body(1))
            found = await asyncio.wait_for(waits, 20)
            assert [message["id"] for message in found["messages"]] == [identifier(1)]

    asyncio.run(run())


def test_a_wait_ends_without_changes_too(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(sqlite_url(tmp_path)) as api:
            await api.add_chat()
            nothing = await changes(api, "since=1&wait=1")
            assert (nothing["next"], nothing["chats"], nothing["more"]) == ("1", [], False)

    asyncio.run(run())
