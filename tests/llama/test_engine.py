"""llama-server's requests on a real engine with a tiny random model: valid ones are served."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from deployments.contract.events import TokenEvent
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest
from tests.engine.drive import Engine, ascii_tokenizer, engine, roomy
from tests.ingress.clusters import CountingCluster
from tests.ingress.engines import never
from tests.llama.serving import COMPLETION, events_of, send
from tests.models import VOCAB
from tests.text.cards import card

CARD = replace(card(), tokenizer_json=ascii_tokenizer(), vocab_size=VOCAB, eos_token_ids=())
HUGE = 2**31 - 1


class RealCluster(CountingCluster):
    def __init__(self, running: Engine) -> None:
        super().__init__(never(), CARD)
        self._engine = running

    async def generate(
        self,
        card: ModelCard,
        request: GenerationRequest,
        is_complete: Callable[[], bool] = lambda: False,
    ) -> AsyncGenerator[TokenEvent, None]:
        async for event in self._engine.core.stream(request, is_complete):
            yield event


@pytest.fixture(scope="module")
def running() -> Iterator[Engine]:
    with engine() as running:
        yield running


def completed(running: Engine, **fields: object) -> Any:
    body = {"prompt": "Hello, hello, hello", "n_predict": 8, "seed": 1, **fields}
    response = asyncio.run(send(RealCluster(running), "POST", COMPLETION, json=body))
    assert response.status_code == 200, response.text
    return events_of(response.text) if fields.get("stream") else response.json()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0},
        {"temperature": 1e300, "dynatemp_range": 1e300, "dynatemp_exponent": 1e300},
        {"temperature": 1e-300, "dynatemp_range": 5},
        {"top_k": HUGE, "min_keep": HUGE},
        {"top_p": 0, "min_p": 1, "typical_p": 0, "top_n_sigma": 1e-300, "top_k": 1},
        {"top_n_sigma": 1e300},
        {"xtc_probability": 1, "xtc_threshold": 0},
        {"repeat_penalty": 1e300, "repeat_last_n": HUGE},
        {"repeat_penalty": 1e-300, "repeat_last_n": -1},
        {"repeat_penalty": 2, "presence_penalty": 1e300, "repeat_last_n": 0},
        {"presence_penalty": -1e300, "frequency_penalty": 1e300},
        {"dry_multiplier": 1e300, "dry_base": 1e300, "dry_allowed_length": 0},
        {"dry_multiplier": 1, "dry_allowed_length": HUGE, "dry_penalty_last_n": HUGE},
        {"mirostat": 1, "mirostat_tau": 0, "mirostat_eta": 1e300},
        {"mirostat": 2, "mirostat_tau": 1e300, "mirostat_eta": 0},
        {"samplers": "edskypmxt" * 3},
        {"samplers": []},
        {"n_probs": 100, "post_sampling_probs": True, "top_k": 3},
        {"n_probs": 100},
        {"logit_bias": [["a", 1e300], ["b", -1e300], ["c", False]]},
        {"ignore_eos": True, "cache_prompt": False, "n_cmpl": 3},
        {"n_predict": 0},
        {"n_indent": 4, "t_max_predict_ms": 1},
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_whatever_a_field_may_say_is_served(
    running: Engine, fields: dict[str, object], stream: bool
) -> None:
    last = completed(running, **fields, stream=stream)
    for result in last if isinstance(last, list) else [last]:
        assert "error" not in result
    running.check_idle()


def test_a_seed_draws_the_same_text_again(running: Engine) -> None:
    first, second = (completed(running, n_predict=30) for _ in range(2))
    assert first["content"] == second["content"]
    assert first["content"] != completed(running, n_predict=30, seed=2)["content"]
    told = first["generation_settings"]["seed"]
    assert completed(running, n_predict=30, seed=told)["content"] == first["content"]


def test_a_prompt_that_comes_again_is_cached(running: Engine) -> None:
    prompt = "The same words as before"
    completed(running, prompt=prompt)
    timings = completed(running, prompt=prompt)["timings"]
    assert timings["cache_n"] > 0
    assert timings["cache_n"] + timings["prompt_n"] == len(prompt)
    assert completed(running, prompt=prompt, cache_prompt=False)["timings"]["cache_n"] == 0


def test_a_stream_may_tell_how_much_of_its_prompt_is_read() -> None:
    fields: dict[str, object] = {"prompt": "A prompt of several steps", "stream": True}
    with engine(limits=roomy(max_running=8, max_batch_tokens=8)) as running:
        events = completed(running, **fields, return_progress=True)
        silent = completed(running, **fields)
    progress = [event["prompt_progress"] for event in events if "prompt_progress" in event]
    processed = [update["processed"] for update in progress]
    assert processed == sorted(processed)
    assert progress[-1]["processed"] == progress[-1]["total"] == len("A prompt of several steps")
    assert {update["cache"] for update in progress} == {0}
    assert "".join(event["content"] for event in events) == "".join(
        event["content"] for event in silent
    )
    assert not any("prompt_progress" in event for event in silent)


@pytest.mark.parametrize("seed", range(5))
def test_a_schema_and_a_grammar_hold(running: Engine, seed: int) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    fields = {"n_predict": 200, "seed": seed, "temperature": 1}
    answer = completed(running, json_schema=schema, **fields)
    assert json.loads(answer["content"]) in ({"a": 1}, {"a": 2})
    answer = completed(running, grammar='root ::= "yes" | "no"', **fields)
    assert answer["content"] in ("yes", "no")


def test_probabilities_after_sampling_are_of_the_tokens_left(running: Engine) -> None:
    body = completed(running, n_probs=10, post_sampling_probs=True, top_k=3, min_p=0)
    for entry in body["completion_probabilities"]:
        tops = [candidate["prob"] for candidate in entry["top_probs"]]
        assert 0 < len(tops) <= 3
        assert sum(tops) == pytest.approx(1, abs=1e-4)
        assert 0 < entry["prob"] <= 1


def test_never_is_never(running: Engine) -> None:
    text = completed(running, n_predict=5, temperature=0, samplers="t")["content"]
    bias = [[character, False] for character in set(text)]
    other = completed(running, n_predict=5, temperature=0, logit_bias=bias, samplers="t")["content"]
    assert not set(other) & set(text)
