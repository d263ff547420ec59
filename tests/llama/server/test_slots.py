"""Actions on slots: llama-server's bodies, names of files, and the replica that acts."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from deployments.contract.model_status import ModelState
from deployments.contract.slots import MAX_SLOTS, SlotStatus, SlotVerb
from deployments.ingress.generation.caller import session_of_slot
from deployments.ingress.http.clients import digest_of
from deployments.ingress.settings import IngressSettings
from deployments.llama.server.filenames import is_filename
from tests.ingress.clusters import CountingCluster
from tests.ingress.engines import says
from tests.llama.serving import COMPLETION, refusal, send, served
from tests.openai.serving import http
from tests.text.cards import card

HELD = ("old", {1: SlotStatus(80, 5.0), 3: SlotStatus(7, 6.0)}), ("new", {1: SlotStatus(96, 7.0)})


Slots = tuple[str, dict[int, SlotStatus]]
NONE: Slots = ("any", {})


def saving(*slots: Slots) -> CountingCluster:
    cluster = CountingCluster(says("x"), replace(card(), saves_slots=True))
    cluster.slots = slots or (NONE,)
    return cluster


def act(cluster: CountingCluster, path: str, **body: object) -> Any:
    return asyncio.run(send(cluster, "POST", path, json=body))


def test_the_answers_are_those_of_llama_server() -> None:
    saved = act(saving(*HELD), "/slots/1?action=save", filename="a.bin").json()
    same = {"id_slot": 1, "filename": "a.bin"}
    assert saved == {**same, "n_saved": 96, "n_written": 4096, "timings": {"save_ms": 1.5}}
    restored = act(saving(), "/slots/1?action=restore", filename="a.bin", model="tiny").json()
    assert restored == {**same, "n_restored": 96, "n_read": 4096, "timings": {"restore_ms": 1.5}}
    assert act(saving(*HELD), "/slots/1?action=erase").json() == {"id_slot": 1, "n_erased": 96}
    without_body = asyncio.run(send(saving(), "POST", "/slots/1?action=erase"))
    assert without_body.json() == {"id_slot": 1, "n_erased": 0}


def test_an_action_goes_to_the_replica_where_the_slot_is() -> None:
    cluster = saving(*HELD)
    act(cluster, "/slots/1?action=save&model=tiny", filename="a.bin")
    act(cluster, "/slots/1?action=restore", filename="a.bin")
    act(cluster, "/slots/1?action=erase")
    done = [(action.verb, replica) for _, action, replica, _ in cluster.slot_actions]
    assert done == [
        (SlotVerb.SAVE, "new"),
        (SlotVerb.RESTORE, None),  # where the router has the slot's next request go
        (SlotVerb.ERASE, "old"),
        (SlotVerb.ERASE, "new"),
    ]
    assert {session for *_, session in cluster.slot_actions} == {session_of_slot("", 1)}


def test_the_next_request_of_a_slot_goes_where_the_slot_is() -> None:
    cluster = saving()
    bodies = [{"id_slot": 1}, {"id_slot": -1}, {}, {"id_slot": 2, "n": 2}]
    for body in bodies:
        assert act(cluster, COMPLETION, prompt=["a", "b"], **body).status_code == 200
    asked = [(request.id_slot, request.session) for request in cluster.requests]
    none, first, second = (-1, ""), (1, session_of_slot("", 1)), (2, session_of_slot("", 2))
    # The last prompt's first choice is what stays in a slot.
    assert asked == [none, first, *[none] * 4, none, none, second, none]
    assert (
        "`id_slot` must be less"
        in refusal(act(cluster, COMPLETION, prompt="a", id_slot=MAX_SLOTS), 400)["message"]
    )
    plain = CountingCluster(says("x"), card())
    assert act(plain, COMPLETION, prompt="a", id_slot=MAX_SLOTS).status_code == 200
    assert plain.requests[0].id_slot == -1


def test_each_key_has_slots_of_its_own() -> None:
    cluster = saving()

    async def run() -> None:
        async with http(served(cluster, IngressSettings(api_keys=("k1", "k2")))) as client:
            for key in ("k1", "k2"):
                headers = {"authorization": f"Bearer {key}"}
                path = "/slots/0?action=restore"
                await client.post(path, json={"filename": "a"}, headers=headers)
            assert (await client.post("/slots/0?action=erase")).status_code == 401

    asyncio.run(run())
    owners = [action.owner for _, action, *_ in cluster.slot_actions]
    assert owners == [digest_of("key", key) for key in ("k1", "k2")]


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("0?action=save", {}, "`filename` is missing"),
        ("0?action=save", {"filename": "../a"}, "Invalid filename"),
        ("0?action=save", {"filename": 5}, "filename"),
        ("0?action=restore", {"filename": "a", "files": 1}, "files"),
        ("0?action=erase", {"filename": "a"}, "no file"),
        ("0?action=save&model=tiny", {"filename": "a", "model": "other"}, "another one"),
        ("0?action=move", {"filename": "a"}, "Invalid action"),
        ("0", {"filename": "a"}, "Invalid action"),
        (f"{MAX_SLOTS}?action=save", {"filename": "a"}, "Invalid slot ID"),
        ("-1?action=save", {"filename": "a"}, "Invalid slot ID"),
    ],
)
def test_what_is_wrong_is_named(path: str, body: dict[str, object], message: str) -> None:
    cluster = saving()
    assert message in refusal(act(cluster, f"/slots/{path}", **body), 400)["message"]
    assert not cluster.slot_actions


def test_what_was_never_left_is_not_saved_and_wakes_nobody() -> None:
    cluster = saving(*HELD)
    error = refusal(act(cluster, "/slots/2?action=save", filename="a"), 400)
    assert "no request with `id_slot` 2" in error["message"]
    assert not cluster.slot_actions
    cluster.slots = ()
    refusal(act(cluster, "/slots/1?action=save", filename="a"), 503)


def test_without_a_folder_there_is_nothing_to_act_on() -> None:
    plain = CountingCluster(says("x"), card())
    error = refusal(act(plain, "/slots/0?action=save", filename="a"), 501)
    assert error["message"] == (
        "This server does not support slots action. Start it with `--slot-save-path`"
    )
    assert error["type"] == "not_supported_error"


def test_a_model_is_loaded_to_restore_a_slot_alone() -> None:
    cluster = saving()
    cluster.states = {"tiny": ModelState.UNLOADED}
    error = refusal(act(cluster, "/slots/0?action=save", filename="a"), 503)
    assert "is not loaded" in error["message"]
    assert act(cluster, "/slots/0?action=restore", filename="a").status_code == 200


def test_the_list_says_what_slots_hold() -> None:
    slots = asyncio.run(send(saving(*HELD, ("far", {5: SlotStatus(9, 1.0)})), "GET", "/slots"))
    held = {slot["id"]: slot.get("n_prompt_tokens") for slot in slots.json()}
    assert held == {0: None, 1: 96, 2: None, 3: 7, 4: None, 5: 9}
    assert [slot["is_processing"] for slot in slots.json()] == [True, *[False] * 5]


@pytest.mark.parametrize("name", ["a", "a b.bin", ".hidden", "日本.bin", "a" * 255])
def test_a_plain_name_is_one_of_a_file(name: str) -> None:
    assert is_filename(name)


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a/b", "/a", "a\\b", "a..b", " a", "a ", "a.", "a:b", "a*", "a\0", "a\n"]
    + ["\x7f", "\x85", "a\uff0eb", "a\u2215b", "\ufeffa", "\ufffd", "\ud800", "ü" * 128],
)
def test_a_path_or_what_looks_like_one_is_none(name: str) -> None:
    assert not is_filename(name)
