"""Refusals and owners of conversations, and what a store that fails does to responses."""

import asyncio
from contextlib import closing
from pathlib import Path
from sqlite3 import connect
from typing import Any

import pytest
from openai.types.conversations import Conversation, ConversationItemList
from pydantic import TypeAdapter

from deployments.openai.responses import database_store
from deployments.openai.responses.database_store import DatabaseStore
from deployments.store import database
from tests.databases import sqlite_url
from tests.ingress.engines import ScriptedEngine, says
from tests.openai.conversations.talking import CONVERSATIONS, asking
from tests.openai.responses.responding import HELLO, RESPONSES, ROOMY, events_of
from tests.openai.serving import Socket, http, served

HELLO_ITEM = {"role": "user", "content": "Hello"}
ITEM_LIST = TypeAdapter(ConversationItemList)
EVERY_ITEM = [
    HELLO_ITEM,
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
    {"role": "assistant", "content": "Let me see.", "phase": "commentary"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc_own"},
    {"type": "function_call_output", "call_id": "c", "output": "42"},
    {"type": "additional_tools", "role": "developer", "tools": []},
]


@pytest.fixture
def file(tmp_path: Path) -> str:
    return sqlite_url(tmp_path)


async def test_answers_are_strictly_what_the_sdk_says_they_are(file: str) -> None:
    async with asking(file, says("x")) as client:
        made = await client.post(CONVERSATIONS, json={"items": EVERY_ITEM})
        TypeAdapter(Conversation).validate_json(made.text, strict=True)
        path = f"{CONVERSATIONS}/{made.json()['id']}/items"
        listed = await client.get(path, params={"order": "asc"})
        ITEM_LIST.validate_json(listed.text, strict=True)
        items = listed.json()["data"]
        assert [item["type"] for item in items[1:]] == [
            "reasoning",
            "message",
            "function_call",
            "function_call_output",
            "additional_tools",
        ]
        assert items[3]["id"] == "fc_own"
        added = await client.post(path, json={"items": [HELLO_ITEM]})
        ITEM_LIST.validate_json(added.text, strict=True)
        assert (await client.get(f"{path}/{items[1]['id']}")).json() == items[1]


WRONG: list[tuple[object, str]] = [
    ({"items": [HELLO_ITEM] * 21}, "items"),
    ({"items": [{"type": "message", "role": "user"}]}, "items[0].content"),
    ({"items": [{"type": "computer_call", "id": "x"}]}, "items[0].type"),
    ({"items": [{**HELLO_ITEM, "id": "a\0b"}]}, "items[0].id"),
    ({"items": [{**HELLO_ITEM, "id": "a"}] * 2}, "items"),
    ({"items": [{"type": "item_reference", "id": "msg_none"}]}, "items[0].id"),
    ({"metadata": {"a" * 65: "b"}}, f"metadata.{'a' * 65}"),
    ({"metadata": {"a": 1}}, "metadata.a"),
    ({"metadata": {f"{n}": "" for n in range(17)}}, "metadata"),
    ({"name": "x"}, "name"),
]


async def test_what_is_wrong_is_refused_by_its_field(file: str) -> None:
    async with asking(file, says("x")) as client:
        for body, param in WRONG:
            refused = await client.post(CONVERSATIONS, json=body)
            assert refused.status_code in (400, 404), refused.text
            assert refused.json()["error"]["param"] == param
        one = f"{CONVERSATIONS}/{(await client.post(CONVERSATIONS, json={})).json()['id']}"
        for path, wrong, param in (
            (one, {}, "metadata"),
            (f"{one}/items", {"items": []}, "items"),
            (f"{CONVERSATIONS}/conv_none/items", {"items": [HELLO_ITEM]}, "id"),
        ):
            refused = await client.post(path, json=wrong)
            assert refused.json()["error"]["param"] == param
        for query in ({"limit": "0"}, {"order": "up"}, {"after": "x"}, {"include": "all"}):
            page = await client.get(f"{one}/items", params=query)
            assert [page.json()["error"]["param"]] == list(query)
        for gone, param in ((f"{one}/items/x", "item_id"), (f"{one}_/items/x", "id")):
            refused = await client.delete(gone)
            assert refused.status_code == 404
            assert refused.json()["error"]["param"] == param


async def test_what_a_conversation_refuses_a_response(file: str) -> None:
    async with asking(file, says("x")) as client:
        made = (await client.post(CONVERSATIONS, json={"items": [HELLO_ITEM]})).json()
        path = f"{CONVERSATIONS}/{made['id']}/items"
        [item] = (await client.get(path)).json()["data"]

        async def param(**fields: object) -> tuple[int, Any]:
            answer = await client.post(RESPONSES, json={**HELLO, **fields})
            counted = await client.post(f"{RESPONSES}/input_tokens", json={**HELLO, **fields})
            assert counted.status_code == answer.status_code
            return answer.status_code, (answer.json()["error"] or {}).get("param")

        assert await param(conversation="conv_none") == (404, "conversation")
        assert await param(conversation="a\0b") == (404, "conversation")
        assert await param(conversation={"id": made["id"], "x": 1}) == (400, "conversation.x")
        both = {"conversation": made["id"], "previous_response_id": "resp_x"}
        assert await param(**both) == (400, "previous_response_id")
        assert await param(conversation=made["id"], input=[item]) == (400, "input[0].id")
        reference = {"type": "item_reference", "id": item["id"]}
        again = {"conversation": made["id"], "input": [reference]}
        assert await param(**again) == (400, "input[0].id")
        assert await param(input=[reference]) == (200, None)
        assert await param(input=[reference, reference]) == (400, "input[1].id")
        assert await param(conversation=made["id"], input=None) == (200, None)


async def test_to_another_key_a_conversation_is_not_there(file: str) -> None:
    async with asking(file, says("x"), api_keys=("a", "b")) as client:

        async def status(key: str, method: str, path: str, body: object = None) -> int:
            headers = {"x-api-key": key}
            return (await client.request(method, path, json=body, headers=headers)).status_code

        headers = {"x-api-key": "a"}
        made = await client.post(CONVERSATIONS, json={"items": [HELLO_ITEM]}, headers=headers)
        one = f"{CONVERSATIONS}/{made.json()['id']}"
        listed = await client.get(f"{one}/items", headers=headers)
        item = listed.json()["data"][0]["id"]
        asked = {**HELLO, "conversation": made.json()["id"]}
        for method, path, body in (
            ("GET", one, None),
            ("POST", one, {"metadata": {}}),
            ("GET", f"{one}/items", None),
            ("POST", f"{one}/items", {"items": [HELLO_ITEM]}),
            ("GET", f"{one}/items/{item}", None),
            ("DELETE", f"{one}/items/{item}", None),
            ("POST", RESPONSES, asked),
            ("DELETE", one, None),
        ):
            assert await status("b", method, path, body) == 404
        assert len((await client.get(f"{one}/items", headers=headers)).json()["data"]) == 1
        assert await status("a", "POST", RESPONSES, asked) == 200


async def test_a_conversation_that_is_full_fails_the_response_that_would_add_to_it(
    file: str,
) -> None:
    async with asking(file, says("x"), max_items=3) as client:
        made = (await client.post(CONVERSATIONS, json={})).json()
        asked = {**HELLO, "conversation": made["id"]}
        assert (await client.post(RESPONSES, json=asked)).status_code == 200
        whole = await client.post(RESPONSES, json=asked)
        assert whole.status_code == 507
        events = events_of(await client.post(RESPONSES, json={**asked, "stream": True}))
        assert events[-1]["type"] == "response.failed"
        assert "items" in events[-1]["response"]["error"]["message"]
        items = await client.get(f"{CONVERSATIONS}/{made['id']}/items")
        assert len(items.json()["data"]) == 2


async def test_without_a_store_conversations_are_off() -> None:
    async with http(served(ScriptedEngine(says("x"), ROOMY))) as client:
        for answer in (
            await client.post(CONVERSATIONS, json={}),
            await client.get(f"{CONVERSATIONS}/conv_x"),
            await client.post(RESPONSES, json={**HELLO, "conversation": "conv_x"}),
        ):
            assert answer.status_code == 403
            assert answer.json()["error"]["code"] == "feature_disabled"


async def test_all_text_is_sent_before_the_answer_is_stored(file: str) -> None:
    store = DatabaseStore(file)
    try:
        await store.write("", lambda kept: kept.responses.delete("", "x"))  # it is opened
        socket = Socket(RESPONSES, {**HELLO, "stream": True})
        with closing(connect(file.removeprefix("sqlite:///"))) as other:
            other.execute("BEGIN IMMEDIATE")
            app = served(ScriptedEngine(says("x"), ROOMY), store=store)
            asking = asyncio.create_task(socket(app))
            sent = b""
            while b"response.output_item.done" not in sent:
                sent += (await socket.sent.get()).get("body", b"")
            assert b"response.completed" not in sent
        await asking
    finally:
        await store.close()


async def test_a_store_out_of_reach_is_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_store, "RETRY_S", float("inf"))
    (tmp_path / "away").write_text("a file where a folder should be")
    async with asking(f"sqlite:///{tmp_path}/away/store.db", says("x")) as client:
        assert (await client.post(CONVERSATIONS, json={})).status_code == 503
        (tmp_path / "away").unlink()
        assert (await client.post(CONVERSATIONS, json={})).status_code == 503


async def test_a_failed_write_leaves_what_is_stored_to_all(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_store, "RETRY_S", float("inf"))
    async with asking(file, says("x")) as client:
        one = f"{RESPONSES}/{(await client.post(RESPONSES, json=HELLO)).json()['id']}"
    # No more pages than it has now.
    monkeypatch.setattr(database, "PRAGMAS", (*database.PRAGMAS, "max_page_count=1"))
    async with asking(file, says("x")) as client:
        large = {"items": [{"role": "user", "content": "x" * 300_000}]}
        full = await client.post(CONVERSATIONS, json=large)
        assert (full.status_code, full.json()["error"]["code"]) == (507, "storage_full")
        assert "disk" in full.json()["error"]["message"]
        assert (await client.get(one)).json()["status"] == "completed"
        assert (await client.delete(one)).json()["deleted"]


async def test_while_the_store_is_away_answers_come_and_say_that_they_are_not_stored(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_text("")
    store = DatabaseStore(f"sqlite:///{tmp_path / 'file' / 'store.db'}")
    async with http(served(ScriptedEngine(says("x"), ROOMY), store=store)) as client:
        for fields in ({"input": [{**HELLO_ITEM, "id": "msg_x"}]}, {"stream": True}):
            made = await client.post(RESPONSES, json={**HELLO, **fields})
            assert made.status_code == 200
            streams = "stream" in fields
            body = events_of(made)[-1]["response"] if streams else made.json()
            assert (body["status"], body["store"]) == ("completed", False)
        for answer in (
            await client.get(f"{RESPONSES}/resp_x"),
            await client.post(CONVERSATIONS, json={}),
            await client.post(RESPONSES, json={**HELLO, "previous_response_id": "resp_x"}),
        ):
            assert answer.status_code == 503
