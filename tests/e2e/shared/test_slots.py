"""llama-server's slots through a real `serve run`, with two replicas: save, restore, erase."""

from pathlib import Path
from typing import Any

from tests.e2e.server import THROUGHPUT, Server
from tests.e2e.shared.models import SLOTS
from tests.e2e.shared.said import PAIR

pytestmark = THROUGHPUT
PAGE, N_PREDICT = 16, 40
QUESTION = "A long story that all have heard, and then they ask: what is the capital of "


def post(server: Server, path: str, **body: object) -> Any:
    answer = server.http.post(path, json={"model": PAIR, **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def complete(server: Server, prompt: object, id_slot: int, n_predict: int = N_PREDICT) -> Any:
    fields = {"temperature": 0, "ignore_eos": True, "return_tokens": True, "n_predict": n_predict}
    return post(server, "/completion", prompt=prompt, id_slot=id_slot, **fields)


def test_a_slot_is_saved_and_goes_on_in_another_one(pair: Server, presets: Path) -> None:
    ids = post(pair, "/tokenize", content=f"{QUESTION}France?", add_special=True)["tokens"]
    first = complete(pair, ids, 1)
    assert (first["id_slot"], first["timings"]["prompt_n"]) == (1, len(ids))
    saved = post(pair, "/slots/1?action=save", filename="slot1.bin")
    n_saved = (len(ids) + N_PREDICT - 1) // PAGE * PAGE
    assert (saved["id_slot"], saved["filename"], saved["n_saved"]) == (1, "slot1.bin", n_saved)
    [file] = presets.with_name(SLOTS).rglob("slot1.bin")
    assert saved["n_written"] == file.stat().st_size
    assert saved["timings"]["save_ms"] > 0

    other = complete(pair, f"{QUESTION}Germany?", 1)  # which has the beginning in common
    assert other["timings"]["cache_n"] == len(QUESTION) // PAGE * PAGE
    going_on = [*ids, *first["tokens"], ids[-1]]
    for id_slot in (0, 1):
        restored = post(pair, f"/slots/{id_slot}?action=restore", filename="slot1.bin")
        assert (restored["id_slot"], restored["n_restored"]) == (id_slot, n_saved)
        assert restored["n_read"] == saved["n_written"]
        assert complete(pair, going_on, id_slot)["timings"]["cache_n"] == n_saved
        slots = pair.http.get("/slots", params={"model": PAIR}).json()
        assert slots[id_slot]["n_prompt_tokens"] == len(going_on) + N_PREDICT - 1
    for id_slot in (0, 1):
        erased = post(pair, f"/slots/{id_slot}?action=erase")
        assert erased["n_erased"] == len(going_on) + N_PREDICT - 1

    file.write_bytes(file.read_bytes()[:-PAGE])
    path = f"/slots/2?action=restore&model={PAIR}"
    refusal = pair.http.post(path, json={"filename": "slot1.bin"})
    assert refusal.status_code == 400
    assert "slot1.bin: it is not whole" in refusal.json()["error"]["message"]
    assert complete(pair, going_on, 2)["content"] == complete(pair, going_on, 3)["content"]
    plain = pair.http.post("/slots/0?action=save", json={"filename": "a"})  # of another model
    assert plain.status_code == 501
