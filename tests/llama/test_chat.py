"""Chats of llama-server's paths tell their timings, and know its native name of logprobs."""

from typing import Any

import pytest

from tests.ingress.engines import says
from tests.llama.serving import ask, refusal
from tests.openai.serving import HELLO, chunks_of
from tests.text.cards import byte_level

CHAT = "/chat/completions"
TEXT = "Hello world"
TOKENS = len(byte_level().encode(TEXT).ids) + 1  # and the end


def whole(**fields: object) -> Any:
    response = ask(says(TEXT), CHAT, {**HELLO, **fields})
    assert response.status_code == 200, response.text
    return response.json()


def streamed(**fields: object) -> list[Any]:
    response = ask(says(TEXT), CHAT, {**HELLO, **fields, "stream": True})
    return chunks_of(response)


def check(timings: Any, usage: Any) -> None:
    assert timings["cache_n"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]
    assert timings["predicted_n"] == usage["completion_tokens"] == TOKENS
    assert timings["predicted_ms"] > 0
    assert timings["predicted_per_second"] > 0


def test_an_answer_tells_its_timings() -> None:
    body = whole()
    check(body["timings"], body["usage"])


def test_a_stream_tells_its_timings_at_its_end() -> None:
    *others, last = streamed()
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["timings"]["predicted_n"] == TOKENS
    assert not any("timings" in chunk for chunk in others)


def test_the_chunk_with_the_usage_has_the_timings_too() -> None:
    *_, ended, usage = streamed(stream_options={"include_usage": True})
    assert usage["choices"] == []
    check(usage["timings"], usage["usage"])
    assert usage["timings"] == ended["timings"]


def test_the_timings_of_several_choices_are_the_firsts() -> None:
    body = whole(n=2)
    assert body["timings"]["predicted_n"] == TOKENS
    assert body["usage"]["completion_tokens"] == 2 * TOKENS


def test_the_native_name_of_logprobs_is_one() -> None:
    native, named = whole(n_probs=2), whole(logprobs=True, top_logprobs=2)
    entries = native["choices"][0]["logprobs"]["content"]
    assert entries == named["choices"][0]["logprobs"]["content"]
    assert [len(entry["top_logprobs"]) for entry in entries] == [2] * len(entries)
    assert bytes(byte for entry in entries for byte in entry["bytes"]).decode() == TEXT
    ids = byte_level().encode(TEXT).ids
    assert [entry["id"] for entry in entries] == ids
    assert [entry["top_logprobs"][0]["id"] for entry in entries] == ids
    assert whole(n_probs=0)["choices"][0]["logprobs"] is None
    [chunk, *_] = [event for event in streamed(n_probs=1) if event["choices"][0]["logprobs"]]
    assert chunk["choices"][0]["logprobs"]["content"][0]["id"] == ids[0]


@pytest.mark.parametrize(
    "fields",
    [
        {"n_probs": -1},
        {"n_probs": 21},
        {"n_probs": "2"},
        {"n_probs": 2, "logprobs": True, "top_logprobs": 3},
        {"n_probs": 2, "logprobs": False},
    ],
)
def test_a_wrong_number_of_alternatives_is_named(fields: dict[str, object]) -> None:
    error = refusal(ask(says("x"), CHAT, {**HELLO, **fields}), 400)
    assert error["param"] == "n_probs"
