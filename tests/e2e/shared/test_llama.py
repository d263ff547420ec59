"""llama-server's endpoints through a real `serve run`."""

import json
import uuid
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.server import THROUGHPUT, Server
from tests.e2e.shared.models import PAGES, SLOTS
from tests.e2e.shared.said import PAIR

GEMMA = {"format": "gguf", "type": "Q4_K_M", "bits": 7.36, "n_params": 268_098_176}
PAGE, N_PREDICT = 16, 40  # tokens of a page, and of an answer
QUESTION = "A long story that all have heard, and then they ask: what is the capital of "
PROMPT = {"prompt": "Once upon", "n_predict": 24, "seed": 3, "temperature": 1.0}


def post(server: Server, path: str, body: object, **headers: str) -> Any:
    answer = server.http.post(path, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(text: str) -> list[Any]:
    data = (line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: "))
    return [json.loads(datum) for datum in data if datum != "[DONE]"]


def test_a_stream_folds_to_the_unary_completion(server: Server) -> None:
    unary = post(server, "/completion", PROMPT)
    answer = server.http.post("/completion", json={**PROMPT, "stream": True})
    parts = events(answer.text)
    assert "".join(part["content"] for part in parts) == unary["content"]
    assert [part["stop"] for part in parts] == [False] * (len(parts) - 1) + [True]
    for key in ("stop_type", "tokens_predicted", "tokens_evaluated", "truncated"):
        assert parts[-1][key] == unary[key]
    assert unary["tokens_predicted"] == 24
    assert unary["generation_settings"]["seed"] == 3


@pytest.mark.exhaustive  # tests/engine/sampling says it of each
def test_every_sampler_makes_a_difference_and_repeats_with_its_seed(server: Server) -> None:
    repeating = {"prompt": "abc" * 5, "logit_bias": [[letter, 8.0] for letter in "abc"]}
    samplers: list[dict[str, object]] = [
        {"typical_p": 0.8},
        {"top_n_sigma": 0.3},
        {"dynatemp_range": 0.5},
        {"xtc_probability": 1.0, "xtc_threshold": 0.001},
        {"dry_multiplier": 9.0, "dry_allowed_length": 1, **repeating},
        {"mirostat": 1},
        {"mirostat": 2, "mirostat_tau": 2.0},
        {"repeat_penalty": 1.3, "repeat_last_n": 16},
        {"samplers": ["top_k", "temperature"], "top_k": 5},
    ]

    def say(fields: dict[str, object]) -> str:
        text: str = post(server, "/completion", {**PROMPT, **fields})["content"]
        return text

    for fields in samplers:
        without = {name: value for name, value in fields.items() if name in repeating}
        assert say(fields) == say(fields) != say(without), fields


def test_a_grammar_is_kept(server: Server) -> None:
    grammar = 'root ::= ("yes" | "no") " " [0-9] [0-9]'
    content = post(server, "/completion", {**PROMPT, "grammar": grammar})["content"]
    word, _, number = content.partition(" ")
    assert word in ("yes", "no")
    assert len(number) == 2
    assert number.isdecimal()


def test_text_becomes_tokens_and_text_again(server: Server) -> None:
    text = "Grüße, 日本"
    tokens = post(server, "/tokenize", {"content": text})["tokens"]
    assert post(server, "/detokenize", {"tokens": tokens})["content"] == text
    messages = [{"role": "user", "content": "Hi"}]
    prompt = post(server, "/apply-template", {"messages": messages})["prompt"]
    assert "Hi" in prompt


def test_the_server_tells_of_itself(server: Server) -> None:
    props = server.http.get("/props?model=tiny").json()
    assert props["total_slots"] == len(server.http.get("/slots").json())
    assert "llamacpp:tokens_predicted_total" in server.http.get("/metrics").text
    assert server.http.get("/tools").status_code == 403


def test_the_fleet_is_watched(server: Server) -> None:
    with server.http.stream("GET", "/fleet/sse") as events:
        for line in events.iter_lines():
            assert "error" not in line
            told = json.loads(line.removeprefix("data: ")) if line else {}
            found = {entry["id"]: entry for entry in told.get("models", ())}
            if told and told["tokens_per_second"] is not None:  # it has asked twice
                break
    [replica] = found["tiny"]["replicas"]
    assert replica["state"] == "ready"
    assert ip_address(replica["node"])
    assert replica["pages_total"] == PAGES
    assert found["tiny"]["status"]["replicas_target"] == 1
    [counted] = [r for r in server.http.get("/stats").json()["replicas"] if r["model"] == "tiny"]
    assert (counted["replica"], counted["node"]) == (replica["id"], replica["node"])


def test_a_stream_outlives_its_connection(server: Server) -> None:
    name = uuid.uuid4().hex
    body = {
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 40,
        "stream": True,
        "ignore_eos": True,
    }
    url = f"{server.url}/v1/chat/completions"
    headers = {"x-conversation-id": name}
    with httpx.stream("POST", url, json=body, headers=headers, timeout=60) as answer:
        begun = next(answer.iter_bytes())
    params = {"conv_id": name, "from": "0"}
    whole = server.http.get("/v1/stream", params=params).text
    assert whole.encode().startswith(begun)
    assert whole.endswith("data: [DONE]\n\n")
    assert events(whole)[-1]["choices"][0]["finish_reason"] == "length"


@THROUGHPUT
def test_a_gguf_file_answers_and_says_its_form(server: Server, client: openai.OpenAI) -> None:
    [listed] = [model.to_dict() for model in client.models.list() if model.id == "gemma"]
    assert listed["weights"] == {**GEMMA, "family": "gemma3"}  # before it is loaded
    answer = client.with_options(timeout=300).completions.create(
        model="gemma-3", prompt="Berlin is the capital of", max_tokens=1, temperature=0
    )
    assert (answer.model, answer.choices[0].text) == ("gemma", " Germany")
    loaded = client.models.retrieve("gemma").to_dict()
    assert loaded["weights"] == listed["weights"]
    meta = loaded["meta"]
    assert isinstance(meta, dict)
    assert (meta["n_vocab"], meta["n_embd"], meta["vocab_type"]) == (262_144, 640, 1)
    assert (meta["n_ctx_train"], meta["ftype"]) == (32_768, "Q4_K_M")
    props = server.http.get("/props?model=gemma").json()
    assert props["model_path"].endswith("/gemma.gguf")
    assert props["weights"] == listed["weights"]


def post_to_pair(server: Server, path: str, **body: object) -> Any:
    return post(server, path, {"model": PAIR, **body})


def complete_in_slot(server: Server, prompt: object, id_slot: int) -> Any:
    fields = {"temperature": 0, "ignore_eos": True, "return_tokens": True, "n_predict": N_PREDICT}
    return post_to_pair(server, "/completion", prompt=prompt, id_slot=id_slot, **fields)


@THROUGHPUT
def test_a_slot_is_saved_and_goes_on_in_another_one(pair: Server, presets: Path) -> None:
    ids = post_to_pair(pair, "/tokenize", content=f"{QUESTION}France?", add_special=True)["tokens"]
    first = complete_in_slot(pair, ids, 1)
    assert (first["id_slot"], first["timings"]["prompt_n"]) == (1, len(ids))
    saved = post_to_pair(pair, "/slots/1?action=save", filename="slot1.bin")
    n_saved = (len(ids) + N_PREDICT - 1) // PAGE * PAGE
    assert (saved["id_slot"], saved["filename"], saved["n_saved"]) == (1, "slot1.bin", n_saved)
    [file] = presets.with_name(SLOTS).rglob("slot1.bin")
    assert saved["n_written"] == file.stat().st_size
    assert saved["timings"]["save_ms"] > 0

    other = complete_in_slot(pair, f"{QUESTION}Germany?", 1)  # which has the beginning in common
    assert other["timings"]["cache_n"] == len(QUESTION) // PAGE * PAGE
    going_on = [*ids, *first["tokens"], ids[-1]]
    for id_slot in (0, 1):
        restored = post_to_pair(pair, f"/slots/{id_slot}?action=restore", filename="slot1.bin")
        assert (restored["id_slot"], restored["n_restored"]) == (id_slot, n_saved)
        assert restored["n_read"] == saved["n_written"]
        assert complete_in_slot(pair, going_on, id_slot)["timings"]["cache_n"] == n_saved
        slots = pair.http.get("/slots", params={"model": PAIR}).json()
        assert slots[id_slot]["n_prompt_tokens"] == len(going_on) + N_PREDICT - 1
    for id_slot in (0, 1):
        erased = post_to_pair(pair, f"/slots/{id_slot}?action=erase")
        assert erased["n_erased"] == len(going_on) + N_PREDICT - 1

    restored = post_to_pair(pair, "/slots/2?action=restore", filename="slot1.bin")
    assert restored["n_restored"] == n_saved
    assert complete_in_slot(pair, going_on, 2)["timings"]["cache_n"] == n_saved
    file.write_bytes(file.read_bytes()[:-PAGE])
    path = f"/slots/2?action=restore&model={PAIR}"
    refusal = pair.http.post(path, json={"filename": "slot1.bin"})
    assert refusal.status_code == 400
    assert "slot1.bin: it is not whole" in refusal.json()["error"]["message"]
    plain = pair.http.post("/slots/0?action=save", json={"filename": "a"})  # of another model
    assert plain.status_code == 501
