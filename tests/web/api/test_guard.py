"""Who may reach `/ui/api`, how often, and how much of it."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import pytest

from deployments.contract.errors import Refused
from deployments.ingress.settings import IngressSettings
from deployments.web.api.guard import RequestLimits, WriteRate
from tests.databases import sqlite_url
from tests.store.talking import CHAT, identifier
from tests.web.api.serving import NEW, OPEN, Api, chat_body, error_of, message_body, served

KEYS = IngressSettings(
    api_keys=("anna-1", "anna-2", "ben", "carl"), key_owners={"anna-1": "anna", "anna-2": "anna"}
)
DATA = b"a file"
DIGEST = sha256(DATA).hexdigest()
JSON = {"content-type": "application/json", **NEW}
OTHER_CHAT = f"/chats/{identifier(0xA)}"
LONE_SURROGATE = json.dumps(chat_body(system="\ud800")).encode()
EVERY_ENDPOINT = [
    ("GET", "/me"),
    ("GET", "/changes"),
    ("PUT", f"/chats/{CHAT}"),
    ("DELETE", f"/chats/{CHAT}"),
    ("POST", f"/chats/{CHAT}/messages"),
    ("DELETE", f"/chats/{CHAT}/messages/{identifier(1)}"),
    ("GET", f"/files/{DIGEST}"),
    ("PUT", f"/files/{DIGEST}"),
    ("GET", "/export"),
    ("GET", "/openapi.json"),
]


def added(*messages: Mapping[str, object]) -> tuple[str, str, Any]:
    return "POST", f"/chats/{CHAT}/messages", {"json": {"messages": messages}}


def key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


def test_each_owner_has_chats_and_files_alone(url: str) -> None:
    async def as_(api: Api, name: str, method: str, path: str, **request: Any) -> httpx.Response:
        headers = {**key(name), **request.pop("headers", {})}
        return await api.ask(method, path, headers=headers, **request)

    async def run() -> None:
        async with served(url, KEYS) as api:
            for name in ("anna-1", "ben"):  # of the same ids
                made = {"json": chat_body(title=name), "headers": NEW}
                assert (await as_(api, name, "PUT", f"/chats/{CHAT}", **made)).status_code == 200
            sent = {"json": {"messages": [message_body(1)]}}
            await as_(api, "anna-1", "POST", f"/chats/{CHAT}/messages", **sent)
            await as_(api, "anna-1", "PUT", f"/files/{DIGEST}", content=DATA)
            # Another key of the same name is the same owner.
            found = (await as_(api, "anna-2", "GET", "/changes")).json()
            assert ([chat["title"] for chat in found["chats"]], len(found["messages"])) == (
                ["anna-1"],
                1,
            )
            assert (await as_(api, "anna-2", "GET", f"/files/{DIGEST}")).content == DATA
            for name in ("ben", "carl"):
                found = (await as_(api, name, "GET", "/changes")).json()
                titles = [chat["title"] for chat in found["chats"]]
                assert (titles, found["messages"]) == (["ben"] if name == "ben" else [], [])
                assert (await as_(api, name, "GET", f"/files/{DIGEST}")).status_code == 404
                path = f"/chats/{CHAT}/messages/{identifier(1)}"
                await as_(api, name, "DELETE", path)
                await as_(api, name, "DELETE", f"/chats/{CHAT}")
            exported = (await as_(api, "anna-1", "GET", "/export")).text
            assert "anna-1" in exported
            assert "Message 1" in exported
            said = [(await as_(api, name, "GET", "/me")).json() for name in ("anna-2", "ben")]
            assert [answer["shared"] for answer in said] == [False, False]
            assert said[0]["owner"] == "anna"
            assert "ben" not in said[1]["owner"]

    asyncio.run(run())


def test_all_have_one_owner_where_there_are_no_keys(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(sqlite_url(tmp_path), defaults={"theme": "dark"}, max_chats=3) as api:
            said = (await api.get("/me")).json()
            assert (said["owner"], said["shared"], said["store"]) == ("", True, "server")
            assert said["defaults"] == {"theme": "dark"}
            assert said["limits"]["max_chats"] == 3
            assert said["limits"]["max_body_bytes"] == OPEN.body_limit

    asyncio.run(run())


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://manta:81"},
        {"host": "evil.example"},  # a name that resolves to this server, without keys
    ],
)
def test_pages_of_strangers_reach_nothing(tmp_path: Path, headers: dict[str, str]) -> None:
    async def run() -> None:
        async with served(sqlite_url(tmp_path)) as api:
            await api.add_chat()
            for method, path in EVERY_ENDPOINT:
                answer = await api.ask(method, path, headers=headers)
                assert (answer.status_code, error_of(answer)["type"]) == (403, "permission_error")
            own = {"sec-fetch-site": "same-origin", "origin": "http://manta"}
            found = (await api.get("/changes", **own)).json()
            assert len(found["chats"]) == 1

    asyncio.run(run())


def test_a_key_is_needed_for_every_endpoint(tmp_path: Path) -> None:
    async def run() -> None:
        async with served(sqlite_url(tmp_path), KEYS) as api:
            for method, path in EVERY_ENDPOINT:
                answer = await api.ask(method, path, headers=key("nobody"))
                assert (answer.status_code, error_of(answer)["code"]) == (401, 401)

    asyncio.run(run())


def test_a_client_writes_so_often_and_another_one_still_may(tmp_path: Path) -> None:
    async def run() -> None:
        requests = RequestLimits(writes=2, writes_s=3600)
        async with served(sqlite_url(tmp_path), KEYS, requests) as api:
            path, statuses = f"/chats/{CHAT}", []
            for name in ("ben", "ben", "ben", "anna-1"):
                answer = await api.ask("DELETE", path, headers=key(name))
                statuses.append(answer.status_code)
                if answer.status_code == 429:
                    assert error_of(answer)["type"] == "rate_limit_error"
                    assert answer.headers["retry-after"] == "1"
            assert statuses == [204, 204, 429, 204]
            assert (await api.get("/changes", **key("ben"))).status_code == 200

    asyncio.run(run())


def test_writes_are_allowed_again_as_time_goes() -> None:
    now = [0.0]
    rate = WriteRate(20, 1.0, clock=lambda: now[0])

    def allowed(client: str) -> int:
        """Returns how many writes are allowed until one is refused."""
        for count in itertools.count():
            try:
                rate.take(client)
            except Refused:
                return count
        raise AssertionError

    assert (allowed("a"), allowed("b"), allowed("a")) == (20, 20, 0)
    now[0] += 0.25
    assert allowed("a") == 5
    now[0] += 3600
    assert allowed("a") == 20


def test_a_client_has_so_many_requests_at_once_and_their_slots_come_back(tmp_path: Path) -> None:
    """A body that never ends holds a slot, until its client leaves."""
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        begun.set()
        yield b"{"
        await asyncio.Event().wait()

    async def run() -> None:
        requests = RequestLimits(at_once=2, writes=1000)
        async with served(sqlite_url(tmp_path), KEYS, requests) as api:
            open_requests = []
            for _ in range(2):
                begun.clear()
                headers = {**JSON, **key("ben")}
                put = api.ask("PUT", f"/chats/{CHAT}", content=endless(), headers=headers)
                open_requests.append(asyncio.create_task(put))
                await begun.wait()
            refused = await api.get("/me", **key("ben"))
            assert (refused.status_code, error_of(refused)["type"]) == (429, "rate_limit_error")
            assert (await api.get("/me", **key("carl"))).status_code == 200
            for task in open_requests:
                task.cancel()
            await asyncio.gather(*open_requests, return_exceptions=True)
            for _ in range(5):  # each gives its slot back
                assert (await api.get("/me", **key("ben"))).status_code == 200
                assert (await api.get("/export", **key("ben"))).status_code == 200
                assert (await api.get("/nothing", **key("ben"))).status_code == 404

    asyncio.run(run())


def test_who_waits_leaves_its_client_all_other_requests(tmp_path: Path) -> None:
    async def run() -> None:
        requests = RequestLimits(at_once=1, waits=2, writes=1000)
        async with served(sqlite_url(tmp_path), OPEN, requests) as api:
            await api.add_chat()
            waits = []
            for n_waiting in (1, 2):
                waits.append(asyncio.create_task(api.get("/changes?since=1&wait=30")))
                await api.until_waiting(n_waiting)
            third = await api.get("/changes?since=1&wait=30")
            assert (third.status_code, "wait" in error_of(third)["message"]) == (429, True)
            assert (await api.add(message_body(1))).status_code == 200
            answers = await asyncio.gather(*waits)
            assert [answer.status_code for answer in answers] == [200, 200]
            assert (await api.get("/me")).status_code == 200

    asyncio.run(run())


def test_requests_that_are_cut_off_leave_the_store_as_it_was(url: str) -> None:
    async def run() -> None:
        async with served(url) as api:
            await api.add_chat()
            await api.add(*[message_body(n) for n in range(1, 50)])
            for steps in range(40):
                asked = asyncio.create_task(
                    api.get("/export")
                    if steps % 2
                    else api.add(message_body(100 + steps, text="x" * 1000))
                )
                for _ in range(steps * 3):
                    await asyncio.sleep(0)
                asked.cancel()
                await asyncio.gather(asked, return_exceptions=True)
            assert (await api.add_when_allowed(message_body(1000))).status_code == 200
            found = (await api.get("/changes?limit=500")).json()
            assert identifier(1000) in {message["id"] for message in found["messages"]}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("limit", "status", "param", "request_"),
    [
        ({"max_chats": 1}, 413, None, ("PUT", OTHER_CHAT, {"json": chat_body(), "headers": NEW})),
        ({"max_messages": 2}, 413, "messages", added(message_body(2), message_body(3))),
        (
            {"max_message_bytes": 400},
            413,
            "messages[1]",
            added(message_body(2), message_body(3, text="x" * 400)),
        ),
        ({"max_file_bytes": 5}, 413, None, ("PUT", f"/files/{DIGEST}", {"content": DATA})),
        ({"max_owner_bytes": 1100}, 507, None, added(message_body(2, text="x" * 400))),
    ],
)
def test_what_exceeds_a_limit_is_refused_with_its_name_and_leaves_nothing(
    tmp_path: Path, limit: Any, status: int, param: str | None, request_: tuple[str, str, Any]
) -> None:
    async def run() -> None:
        async with served(sqlite_url(tmp_path), **limit) as api:
            await api.add_chat()
            assert (await api.add(message_body(1))).status_code == 200
            before = (await api.get("/me")).json()
            method, path, sent = request_
            refused = await api.ask(method, path, **sent)
            (name,) = limit
            error = error_of(refused)
            assert (refused.status_code, error.get("param")) == (status, param)
            assert f"`{name}`" in error["message"]
            assert (await api.get("/me")).json() == before

    asyncio.run(run())


@pytest.mark.parametrize(
    ("method", "path", "request_", "status", "param"),
    [
        ("GET", "/changes?since=x", {}, 400, "since"),
        ("GET", "/changes?since=-1", {}, 400, "since"),
        ("GET", "/changes?limit=0", {}, 400, "limit"),
        ("GET", "/changes?limit=501", {}, 400, "limit"),
        ("GET", "/changes?wait=31", {}, 400, "wait"),
        ("GET", "/changes?wait=1.5", {}, 400, "wait"),
        ("PUT", "/chats/1", {"json": chat_body()}, 400, "id"),
        ("DELETE", f"/chats/{identifier(0xA).upper()}", {}, 400, "id"),
        ("DELETE", f"/chats/{CHAT}/messages/1", {}, 400, "message"),
        ("PUT", f"/chats/{CHAT}", {"json": chat_body(nope=1)}, 400, "nope"),
        ("PUT", f"/chats/{CHAT}", {"json": {"title": "A"}}, 400, "created_at"),
        ("PUT", f"/chats/{CHAT}", {"json": chat_body(title="a\0b")}, 400, "title"),
        ("PUT", f"/chats/{CHAT}", {"json": chat_body(title="x" * 1001)}, 400, "title"),
        ("PUT", f"/chats/{CHAT}", {"json": chat_body(created_at=1.5)}, 400, "created_at"),
        ("PUT", f"/chats/{CHAT}", {"json": chat_body(leaf="x")}, 400, "leaf"),
        ("PUT", f"/chats/{CHAT}", {"content": LONE_SURROGATE, "headers": JSON}, 400, None),
        ("PUT", f"/chats/{CHAT}", {"content": b"{}"}, 415, None),
        ("PUT", f"/chats/{CHAT}", {"json": [], "headers": {"if-match": "17"}}, 400, "if-match"),
        ("PUT", f"/chats/{CHAT}", {"json": [], "headers": {"if-match": '"0"'}}, 400, "if-match"),
        ("PUT", f"/chats/{CHAT}", {"json": [], "headers": {"if-match": "*"}}, 400, "if-match"),
        ("POST", f"/chats/{CHAT}/messages", {"json": {"messages": []}}, 400, "messages"),
        ("POST", f"/chats/{CHAT}/messages", {"json": []}, 400, None),
        ("POST", "/me", {}, 405, None),
        ("GET", "/nothing", {}, 404, None),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, method: str, path: str, request_: Any, status: int, param: str | None
) -> None:
    async def run() -> None:
        async with served(sqlite_url(tmp_path)) as api:
            sent = {"headers": NEW, **request_}
            answer = await api.ask(method, path, **sent)
            assert (answer.status_code, error_of(answer).get("param")) == (status, param)

    asyncio.run(run())
