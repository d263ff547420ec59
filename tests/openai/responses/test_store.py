"""Responses can be retrieved until they are deleted or evicted by newer ones."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from openai.types.responses import ResponseItemList
from pydantic import TypeAdapter
from starlette.datastructures import QueryParams

from deployments.contract.errors import ErrorKind, RequestError
from deployments.openai.responses.item_pages import MAX_PAGE_BYTES, ItemPage
from tests.ingress.engines import ScriptedEngine, fails, forever, says
from tests.openai.responses.responding import CALL, HELLO, RESPONSES, ROOMY, WEATHER, events_of
from tests.openai.serving import Socket, http, served

ITEMS = TypeAdapter(ResponseItemList)
HELLO_ITEM = {"role": "user", "content": "Hello"}


@asynccontextmanager
async def visiting(script: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with http(served(ScriptedEngine(script, ROOMY))) as client:
        yield client


@pytest.mark.parametrize("fields", [{}, {"max_output_tokens": 2}, {"tools": [WEATHER]}])
async def test_a_stored_response_can_be_retrieved(fields: dict[str, object]) -> None:
    async with visiting(says(f"Hello {CALL}")) as client:
        made = await client.post(RESPONSES, json={**HELLO, **fields})
        path = f"{RESPONSES}/{made.json()['id']}"
        assert (await client.get(path)).content == made.content
        assert (await client.get(path, params={"stream": "false"})).status_code == 200


async def test_a_streamed_response_can_be_retrieved() -> None:
    async with visiting(says("Hello")) as client:
        last = events_of(await client.post(RESPONSES, json={**HELLO, "stream": True}))[-1]
        response = last["response"]
        assert (await client.get(f"{RESPONSES}/{response['id']}")).json() == response


async def test_a_deleted_response_is_gone() -> None:
    async with visiting(says("x")) as client:
        made = (await client.post(RESPONSES, json=HELLO)).json()
        path = f"{RESPONSES}/{made['id']}"
        deleted = {"id": made["id"], "object": "response", "deleted": True}
        assert (await client.delete(path)).json() == deleted
        assert (await client.delete(path)).status_code == 404
        assert (await client.get(path)).status_code == 404
        again = await client.post(RESPONSES, json={**HELLO, "previous_response_id": made["id"]})
        assert again.status_code == 400
        assert again.json()["error"]["code"] == "previous_response_not_found"
        reference = {"type": "item_reference", "id": made["output"][0]["id"]}
        gone = await client.post(RESPONSES, json={"input": [reference]})
        assert (gone.status_code, gone.json()["error"]["param"]) == (404, "input[0].id")


async def test_to_another_key_a_response_is_not_there() -> None:
    app = served(ScriptedEngine(says("x"), ROOMY), api_keys=("a", "b"))
    async with http(app) as client:

        async def status(method: str, path: str, key: str, body: object = None) -> int:
            headers = {"x-api-key": key}
            answer = await client.request(method, path, json=body, headers=headers)
            return answer.status_code

        headers = {"x-api-key": "a"}
        made = (await client.post(RESPONSES, json=HELLO, headers=headers)).json()
        path = f"{RESPONSES}/{made['id']}"
        for method, target in (
            ("GET", path),
            ("GET", f"{path}/input_items"),
            ("POST", f"{path}/cancel"),
            ("DELETE", path),
        ):
            assert await status(method, target, "b") == 404
        continued = {**HELLO, "previous_response_id": made["id"]}
        referred = {"input": [{"type": "item_reference", "id": made["output"][0]["id"]}]}
        for body, refused in ((continued, 400), (referred, 404)):
            for target in (RESPONSES, f"{RESPONSES}/input_tokens"):
                assert await status("POST", target, "b", body) == refused
                assert await status("POST", target, "a", body) == 200
        assert await status("GET", path, "a") == 200


async def test_a_count_goes_on_with_what_is_stored() -> None:
    async with visiting(says("x")) as client:
        first = (await client.post(RESPONSES, json=HELLO)).json()
        body = {"input": "And then?", "previous_response_id": first["id"]}
        counted = (await client.post(f"{RESPONSES}/input_tokens", json=body)).json()
        used = (await client.post(RESPONSES, json=body)).json()["usage"]["input_tokens"]
        assert counted["input_tokens"] == used > first["usage"]["input_tokens"]


async def test_a_request_may_go_unstored() -> None:
    async with visiting(says("x")) as client:
        made = (await client.post(RESPONSES, json={**HELLO, "store": False})).json()
        assert made["store"] is False
        assert (await client.get(f"{RESPONSES}/{made['id']}")).status_code == 404


async def test_what_failed_is_not_stored() -> None:
    async with visiting(
        fails(RequestError(ErrorKind.UNAVAILABLE, "gone"), after="Hello")
    ) as client:
        last = events_of(await client.post(RESPONSES, json={**HELLO, "stream": True}))[-1]
        path = f"{RESPONSES}/{last['response']['id']}"
        assert (await client.get(path)).status_code == 404


async def test_what_its_client_left_is_not_stored() -> None:
    engine = ScriptedEngine(forever())
    app = served(engine)
    socket = Socket(RESPONSES, {**HELLO, "stream": True})
    asking = asyncio.create_task(socket(app))
    await socket.sent.get()  # the status
    begun = (await socket.sent.get())["body"]
    response_id = begun.partition(b'"id":"')[2].partition(b'"')[0].decode()
    assert response_id.startswith("resp_")
    socket.leave()
    await asking
    assert engine.running == 0
    async with http(app) as client:
        assert (await client.get(f"{RESPONSES}/{response_id}")).status_code == 404


async def test_a_response_that_has_ended_can_not_be_cancelled() -> None:
    async with visiting(says("x")) as client:
        made = (await client.post(RESPONSES, json=HELLO)).json()
        assert (await client.post(f"{RESPONSES}/{made['id']}/cancel")).status_code == 400
        assert (await client.post(f"{RESPONSES}/resp_x/cancel")).status_code == 404


QUERIES = [
    ("", {"stream": "true"}, "stream"),
    ("", {"starting_after": "3"}, "starting_after"),
    ("/input_items", {"limit": "0"}, "limit"),
    ("/input_items", {"limit": "101"}, "limit"),
    ("/input_items", {"limit": "ten"}, "limit"),
    ("/input_items", {"order": "up"}, "order"),
    ("/input_items", {"after": "msg_none"}, "after"),
]


@pytest.mark.parametrize(("path", "query", "param"), QUERIES)
async def test_a_wrong_query_is_refused_by_its_name(
    path: str, query: dict[str, str], param: str
) -> None:
    async with visiting(says("x")) as client:
        made = (await client.post(RESPONSES, json=HELLO)).json()
        response = await client.get(f"{RESPONSES}/{made['id']}{path}", params=query)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param


EVERYTHING = [
    {"role": "developer", "content": "Be kind."},
    {
        "type": "additional_tools",
        "role": "developer",
        "tools": [WEATHER, {"type": "tool_search"}],
    },
    {"role": "user", "content": [{"type": "input_text", "text": "One?"}]},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
    {"role": "assistant", "content": "Let me see.", "phase": "commentary"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "id": "fc_own"},
    {
        "type": "function_call_output",
        "call_id": "c",
        "output": [{"type": "input_text", "text": "42"}],
    },
]


async def test_input_items_are_whole_and_in_order() -> None:
    async with visiting(says("x")) as client:
        first = (await client.post(RESPONSES, json={"input": EVERYTHING})).json()
        body = {"input": "Two?", "previous_response_id": first["id"]}
        second = (await client.post(RESPONSES, json=body)).json()
        path = f"{RESPONSES}/{second['id']}/input_items"
        listed = await client.get(path, params={"order": "asc"})
        ITEMS.validate_json(listed.text, strict=True)
        items = listed.json()["data"]
        assert len(items) == len(EVERYTHING) + 2
        assert items[1]["tools"][1] == {"type": "tool_search"}
        assert items[5]["id"] == "fc_own"
        assert items[-1]["content"] == [{"type": "input_text", "text": "Two?"}]
        assert items[-2] == first["output"][0]
        assert (await client.get(path)).json()["data"] == items[::-1]


async def test_input_items_come_in_pages() -> None:
    async with visiting(says("x")) as client:
        made = (await client.post(RESPONSES, json={"input": EVERYTHING})).json()
        path = f"{RESPONSES}/{made['id']}/input_items"
        whole = (await client.get(path)).json()
        assert whole["has_more"] is False
        pages: list[Any] = []
        query = {"limit": "4"}
        while len(pages) < 4:
            page = (await client.get(path, params=query)).json()
            pages += page["data"]
            assert (page["first_id"], page["last_id"]) == (
                page["data"][0]["id"],
                page["data"][-1]["id"],
            )
            assert page["has_more"]
            query = {"limit": "4", "after": page["last_id"]}
        page = (await client.get(path, params=query)).json()
        assert (pages + page["data"], page["has_more"]) == (whole["data"], False)


def test_a_page_of_large_items_is_short() -> None:
    page = ItemPage(QueryParams(order="asc"))
    large = MAX_PAGE_BYTES // 2
    for sizes, n_items in (([large] * 2, 2), ([large] * 3, 2), ([MAX_PAGE_BYTES + 1, 1], 1)):
        assert page([(f"{n}", size) for n, size in enumerate(sizes)]) == range(n_items)
        assert json.loads(page.body(()))["has_more"] is (n_items < len(sizes))


@pytest.mark.parametrize("limit", [30, 45, 50])
async def test_an_answer_cut_within_a_call_can_be_gone_on_with(limit: int) -> None:
    async with visiting(says(CALL)) as client:
        cut = {**HELLO, "tools": [WEATHER], "max_output_tokens": limit}
        made = (await client.post(RESPONSES, json=cut)).json()
        assert made["output"][-1]["type"] == "function_call"
        repeated = [HELLO_ITEM, *made["output"], HELLO_ITEM]
        for fields in ({"previous_response_id": made["id"]}, {"input": repeated}):
            response = await client.post(RESPONSES, json={**HELLO, **fields})
            assert response.status_code == 200, response.text


async def test_a_message_without_an_id_can_be_referred_to_by_the_one_it_got() -> None:
    async with visiting(says("x")) as client:
        made = (await client.post(RESPONSES, json={**HELLO, "input": [HELLO_ITEM]})).json()
        listed = (await client.get(f"{RESPONSES}/{made['id']}/input_items")).json()
        [item] = listed["data"]
        referred = [{"type": "item_reference", "id": item["id"]}]
        response = await client.post(RESPONSES, json={**HELLO, "input": referred})
    assert response.status_code == 200, response.text


async def test_an_id_that_a_client_made_up_is_for_itself_alone() -> None:
    async with visiting(says("x")) as client:
        secret = {"type": "message", "role": "user", "id": "msg_1", "content": "secret"}
        made = (await client.post(RESPONSES, json={"input": [secret, secret]})).json()
        path = f"{RESPONSES}/{made['id']}/input_items"
        first = (await client.get(path, params={"limit": 1})).json()
        rest = (await client.get(path, params={"after": first["last_id"]})).json()
        ids = [item["id"] for item in first["data"] + rest["data"]]
        reference = {"type": "item_reference", "id": "msg_1"}
        answer = await client.post(RESPONSES, json={"input": [reference]})
    assert ids == ["msg_1"]
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "input[0].id"
