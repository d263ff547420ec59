"""Who asks is told apart, by nothing that a client could borrow; and none takes all the slots."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp

from deployments.contract.errors import ErrorKind, Refused
from deployments.contract.requests import GenerationRequest
from deployments.ingress.generation.inflight_limit import InflightLimit
from deployments.ingress.metrics import Metrics
from deployments.ingress.settings import DEFAULTS, IngressSettings
from deployments.openai.routes import app
from tests.ingress.edge import OVERLOADED, every
from tests.ingress.engines import Loading, ScriptedEngine, never, says
from tests.ingress.protocols.completions import COMPLETIONS
from tests.ingress.protocols.every import EACH
from tests.ingress.protocols.protocol import Protocol
from tests.openai.serving import CHAT, HELLO, Socket, http

KEYS = ("first-key", "second-key")
LIMITED = IngressSettings(api_keys=KEYS)
BEHIND_A_PROXY = IngressSettings(sees_peers=False)
Asked = tuple[str, str]  # client and session


def told(
    body: dict[str, Any],
    headers: dict[str, str] | None = None,
    *,
    settings: IngressSettings = DEFAULTS,
    address: str = "10.0.0.1",
) -> Asked:
    """Returns the client and the session that the engine hears of."""
    request = heard(body, headers, settings, address)
    return request.client, request.session


def heard(
    body: dict[str, Any],
    headers: dict[str, str] | None = None,
    settings: IngressSettings = DEFAULTS,
    address: str = "10.0.0.1",
) -> GenerationRequest:
    async def ask() -> GenerationRequest:
        engine = ScriptedEngine(says("x"))
        transport = httpx.ASGITransport(app(engine, Metrics(), settings), client=(address, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://manta") as client:
            path = CHAT if "messages" in body else COMPLETIONS.path
            response = await client.post(path, json=body, headers=headers or {})
        assert response.status_code == 200, response.text
        [request] = engine.requests
        return request

    return asyncio.run(ask())


def key(value: str) -> dict[str, str]:
    return {"authorization": f"Bearer {value}"}


def test_a_key_is_one_client_from_wherever_it_comes() -> None:
    there = told(HELLO, key(KEYS[0]), settings=LIMITED, address="10.0.0.2")
    also = told(HELLO, {"x-api-key": KEYS[0]}, settings=LIMITED)
    assert told(HELLO, key(KEYS[0]), settings=LIMITED) == there == also
    assert told(HELLO, key(KEYS[1]), settings=LIMITED) != there


@pytest.mark.parametrize("own", [{}, {"cache_salt": "mine"}])
def test_a_key_finds_cached_prefixes_of_its_own_requests_alone(own: dict[str, str]) -> None:
    def salt(of: str, settings: IngressSettings = LIMITED) -> str:
        return heard({**HELLO, **own}, key(of), settings).content.salt

    first, second = KEYS
    assert salt(first) == salt(first) != salt(second)
    assert salt(first) != heard(HELLO, key(first), LIMITED).content.salt or not own
    sharing = replace(LIMITED, shared_prefixes=True)
    assert salt(first, sharing) == salt(second, sharing) == own.get("cache_salt", "")
    assert heard({**HELLO, **own}).content.salt == own.get("cache_salt", "")


def test_a_priority_orders_a_client_s_own_requests_unless_it_may_order_all() -> None:
    request = heard({**HELLO, "priority": -5})
    assert (request.priority, request.own_priority) == (0, -5)
    request = heard({**HELLO, "priority": -5}, settings=IngressSettings(priority_orders_all=True))
    assert (request.priority, request.own_priority) == (-5, 0)


def test_what_ends_without_its_text_and_is_read_whole_may_come_in_fewer_events() -> None:
    assert heard(HELLO).may_gather
    assert not heard({**HELLO, "stream": True}).may_gather
    assert not heard({**HELLO, "stop": "x"}).may_gather


def test_without_keys_an_address_is_one_client_whatever_it_says_of_itself() -> None:
    plain = told(HELLO)
    assert told(HELLO, {"x-forwarded-for": "10.9.9.9", **key("made-up")}) == plain
    assert told(HELLO, address="10.0.0.2") != plain


def test_behind_a_proxy_that_tells_nothing_all_addresses_are_one_client() -> None:
    one = told(HELLO, settings=BEHIND_A_PROXY)
    assert told(HELLO, settings=BEHIND_A_PROXY, address="10.0.0.2") == one


@pytest.mark.parametrize("field", ["user", "safety_identifier"])
def test_the_users_of_one_gateway_are_told_apart(field: str) -> None:
    first, second = (told({**HELLO, field: name})[0] for name in ("ann", "bob"))
    assert len({first, second, told(HELLO)[0]}) == 3
    assert told({**HELLO, field: "ann"}, address="10.0.0.2")[0] != first


@pytest.mark.parametrize("name", ["x-session-id", "x-dynamo-session-id", "x-conversation-id"])
def test_a_header_names_the_conversation(name: str) -> None:
    session = told(HELLO, {name: "c1"})[1]
    assert session
    assert told(HELLO, {name: "c1"})[1] == session
    assert told(HELLO, {name: "c2"})[1] != session
    assert told(HELLO)[1] == ""


def test_the_conversation_of_another_client_is_another_one() -> None:
    headers = {"x-session-id": "c1"}
    assert told(HELLO, headers)[1] != told(HELLO, headers, address="10.0.0.2")[1]


def test_a_session_header_goes_before_the_cache_key_and_that_before_a_stream_s_name() -> None:
    keyed = {**HELLO, "prompt_cache_key": "k"}
    header, stream = {"x-session-id": "k"}, {"x-conversation-id": "other"}
    assert told(keyed)[1] == told(HELLO, header)[1] == told(keyed, stream)[1]
    assert told(keyed, {"x-session-id": "other"})[1] == told(HELLO, stream)[1]


def test_nothing_of_it_is_readable() -> None:
    digests = told(
        {**HELLO, "user": "ann"}, {"x-session-id": "c1", **key(KEYS[0])}, settings=LIMITED
    )
    assert all(len(digest) == 32 and int(digest, 16) for digest in digests)


def test_every_choice_and_every_prompt_is_of_the_same_client() -> None:
    requests = COMPLETIONS.asked(prompt=["a", "b"], n=2, user="ann")
    assert len(requests) == 4
    assert len({(request.client, request.session) for request in requests}) == 1


def test_no_more_slots_are_taken_than_there_are() -> None:
    inflight_limit = InflightLimit(3)
    leaves = [inflight_limit.acquire(client) for client in "abc"]
    with pytest.raises(Refused) as caught:
        inflight_limit.acquire("d")
    assert caught.value.error.kind is ErrorKind.OVERLOADED
    leaves[0]()
    inflight_limit.acquire("d")
    assert inflight_limit.inflight == 3


def test_one_client_leaves_room_for_others() -> None:
    inflight_limit = InflightLimit(90)
    while True:
        try:
            inflight_limit.acquire("greedy")
        except Refused:
            break
    assert inflight_limit.inflight == 80  # 8 times the 10 that are free
    for number in range(9):
        inflight_limit.acquire(f"other {number}")
    assert inflight_limit.inflight == 89


def test_whoever_gives_back_may_take_again() -> None:
    inflight_limit = InflightLimit(2)
    for _ in range(5):
        leave = inflight_limit.acquire("a")
        also = inflight_limit.acquire("a")
        leave()
        also()
    assert inflight_limit.inflight == 0


@EACH
def test_what_is_too_much_is_refused_at_once_in_the_protocol_s_form(protocol: Protocol) -> None:
    served = every(IngressSettings(max_inflight=0))[protocol.application]
    response = asyncio.run(_post(served, protocol.path, {}))
    assert response.status_code == OVERLOADED[protocol.application]
    assert response.headers["retry-after"] == "1"
    assert "0 requests already" in response.text


async def test_a_slot_is_free_again_when_its_answer_has_ended_or_was_left() -> None:
    engine = ScriptedEngine(never())
    served = app(engine, Metrics(), IngressSettings(max_inflight=1))
    for _ in range(2):
        socket = Socket(CHAT, HELLO)
        asking = asyncio.create_task(socket(served))
        await engine.starts.get()
        assert (await _post(served, CHAT, HELLO)).status_code == 429
        socket.leave()
        await asking
    engine.script = says("x")
    for body, status in ((HELLO, 200), ({}, 400), (HELLO, 200)):
        assert (await _post(served, CHAT, body)).status_code == status


@pytest.mark.parametrize("path", [CHAT, f"{CHAT}/input_tokens"])
async def test_a_client_that_leaves_while_its_model_loads_leaves_the_queue(path: str) -> None:
    engine, metrics = Loading(), Metrics()
    served = app(engine, metrics)
    socket = Socket(path, HELLO)
    asking = asyncio.create_task(socket(served))
    await engine.asked.acquire()
    assert engine.waiting == 1
    socket.leave()
    await asking
    assert engine.waiting == 0
    assert socket.sent.empty()
    [ended] = [s for f in metrics.samples() for s in f.samples if s[0] == "manta_requests_total"]
    assert ended[1]["error"] == "cancelled"


async def _post(served: ASGIApp, path: str, body: object) -> httpx.Response:
    async with http(served) as client:
        return await client.post(path, json=body)
