"""llama-server's completions: exact objects, and streams that fold to them."""

from collections.abc import AsyncIterator

import pytest

from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.requests import GenerationRequest
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import END, plays, says
from tests.ingress.protocols.native import NATIVE
from tests.llama.serving import COMPLETION, ask, refusal, streamed, whole
from tests.openai.scripts import scoring
from tests.text.cards import card

TOKENIZER = TextTokenizer(card())
asked = NATIVE.asked
FINAL = [
    "index",
    "content",
    "tokens",
    "id_slot",
    "stop",
    "model",
    "tokens_predicted",
    "tokens_evaluated",
    "generation_settings",
    "prompt",
    "has_new_line",
    "truncated",
    "stop_type",
    "stopping_word",
    "tokens_cached",
    "timings",
]


def prompts(prompt: object) -> list[tuple[int, ...]]:
    return [request.prompt_ids for request in asked(prompt=prompt)]


def encoded(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text, True))


def test_the_object_has_every_field_in_llama_servers_order() -> None:
    body = whole(says("Hi."), prompt="Hello", id_slot=2)
    assert list(body) == FINAL
    del body["generation_settings"], body["timings"]
    n_prompt, n_output = len(encoded("Hello")), len(encoded("Hi.")) + 1
    assert body == {
        "index": 0,
        "content": "Hi.",
        "tokens": [],
        "id_slot": 2,
        "stop": True,
        "model": "tiny",
        "tokens_predicted": n_output,
        "tokens_evaluated": n_prompt,
        "prompt": "Hello",
        "has_new_line": False,
        "truncated": False,
        "stop_type": "eos",
        "stopping_word": "",
        "tokens_cached": n_prompt + n_output - 1,
    }


def test_the_alias_is_the_same() -> None:
    body = ask(says("Hi."), "/completions", {"prompt": "Hello"}).json()
    assert (list(body), body["content"]) == (FINAL, "Hi.")


def test_the_last_event_of_a_stream_has_all_but_text_and_tokens() -> None:
    events = streamed(says("Hi."), prompt="Hello", return_tokens=True)
    assert list(events[-1]) == FINAL
    assert (events[-1]["content"], events[-1]["tokens"]) == ("", [])
    assert [event["stop"] for event in events] == [False] * (len(events) - 1) + [True]
    assert [token for event in events for token in event["tokens"]] == [*encoded("Hi."), END]


@pytest.mark.parametrize(
    ("fields", "stop_type", "stopping_word"),
    [
        ({"stop": "wor"}, "word", "wor"),
        ({"max_tokens": 1}, "limit", ""),
        ({"max_completion_tokens": 1}, "limit", ""),
    ],
)
def test_it_says_why_it_stopped(
    fields: dict[str, object], stop_type: str, stopping_word: str
) -> None:
    body = whole(says("Hello world"), prompt="a", **fields)
    assert (body["stop_type"], body["stopping_word"]) == (stop_type, stopping_word)
    assert body["truncated"] is False


def test_only_the_prompt_may_be_evaluated() -> None:
    body = whole(scoring(says("x")), prompt="a", n_predict=0)
    assert (body["content"], body["tokens_predicted"], body["stop_type"]) == ("", 0, "limit")
    assert asked(prompt="a", n_predict=0)[0].max_tokens == 0


def test_without_a_limit_the_context_is_the_limit() -> None:
    body = whole(plays([66] * 600), prompt="a")
    assert body["truncated"] is True
    assert body["stop_type"] == "limit"
    assert body["tokens_evaluated"] + body["tokens_predicted"] == 512
    assert whole(plays([66] * 600), prompt="a", n_predict=511)["truncated"] is False


def test_prompts_come_in_every_form() -> None:
    hello = encoded("Hello")
    assert prompts("Hello") == [hello]
    assert prompts([66, 67]) == [(66, 67)]
    assert prompts([66, "Hello", 67]) == [(66, *hello, 67)]
    assert prompts(["Hello", "a"]) == [hello, encoded("a")]
    assert prompts([[66], "Hello"]) == [(66,), hello]
    assert prompts({"prompt_string": "Hello"}) == [hello]
    assert prompts([{"prompt_string": "a", "multimodal_data": []}, ["Hello", 66]]) == [
        encoded("a"),
        (*hello, 66),
    ]


def test_special_tokens_in_a_prompt_are_tokens_and_shown() -> None:
    assert prompts("<|im_start|>") == [(TOKENIZER.special_id("<|im_start|>"),)]
    assert whole(says("x"), prompt="<|im_start|>a")["prompt"] == "<|im_start|>a"


def test_several_results_are_a_bare_list_and_one_is_none() -> None:
    several = whole(says("a", "b", "c", "d"), prompt=["x", "y"], n=2, seed=5)
    assert [result["index"] for result in several] == [0, 1, 2, 3]
    assert [result["content"] for result in several] == ["a", "b", "c", "d"]
    assert [result["prompt"] for result in several] == ["x", "x", "y", "y"]
    assert [result["generation_settings"]["seed"] for result in several] == [5, 6, 5, 6]
    assert isinstance(whole(says("a"), prompt=["x"]), dict)


def test_probabilities_are_logarithms_of_the_model_or_of_the_draw() -> None:
    [entry, *_] = whole(says("Hi."), prompt="a", n_probs=2)["completion_probabilities"]
    drawn = encoded("Hi.")[0]
    token = {"id": drawn, "token": "H", "bytes": [72], "logprob": -0.5}
    end = {"id": END, "token": "<|im_end|>", "bytes": list(b"<|im_end|>")}
    assert entry == {
        **token,
        "top_logprobs": [token, {**end, "logprob": -3.4028234663852886e38}],
    }
    fields = {"n_probs": 2, "post_sampling_probs": True}
    [entry, *_] = whole(says("Hi."), prompt="a", **fields)["completion_probabilities"]
    assert entry["prob"] == pytest.approx(0.6065, abs=1e-4)
    assert [candidate["id"] for candidate in entry["top_probs"]] == [drawn]
    assert asked(prompt="a", **fields)[0].sampling.sampled_logprobs


def test_every_token_has_its_probability_the_end_too() -> None:
    body = whole(says("Hi."), prompt="a", n_probs=1, return_tokens=True)
    drawn = [entry["id"] for entry in body["completion_probabilities"]]
    assert drawn == body["tokens"] == [*encoded("Hi."), END]


def test_the_timings_agree_with_the_counts() -> None:
    timings = whole(says("Hello world"), prompt=[66] * 9)["timings"]
    assert list(timings) == [
        "cache_n",
        "prompt_n",
        "prompt_ms",
        "prompt_per_token_ms",
        "prompt_per_second",
        "predicted_n",
        "predicted_ms",
        "predicted_per_token_ms",
        "predicted_per_second",
    ]
    assert (timings["cache_n"], timings["prompt_n"]) == (4, 5)
    assert timings["predicted_n"] == len(encoded("Hello world")) + 1
    assert min(timings.values()) >= 0


async def drafts(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
    yield TokenEvent(token_ids=encoded("Hi")[-1:], drafted_tokens=3)
    yield TokenEvent(token_ids=encoded("Hi")[-1:], accepted_tokens=1)
    yield TokenEvent(
        token_ids=(END,), finish_reason=FinishReason.STOP, stop_token_id=END, drafted_tokens=2
    )


def test_the_timings_tell_of_drafts_where_there_are_any() -> None:
    timings = whole(drafts, prompt="a")["timings"]
    assert (timings["draft_n"], timings["draft_n_accepted"]) == (5, 1)


def test_timings_may_come_with_every_event() -> None:
    events = streamed(says("Hello"), prompt="a", timings_per_token=True)
    assert [event["timings"]["predicted_n"] for event in events[:-1]] == [
        event["tokens_predicted"] for event in events[:-1]
    ]
    assert all("timings" not in event for event in streamed(says("Hi"), prompt="a")[:-1])


def test_fields_of_the_answer_are_chosen_by_path() -> None:
    fields = ["content", "generation_settings/n_predict", "timings/prompt_n", "nothing", "stop/x"]
    body = whole(says("Hi."), prompt="a", n_predict=9, response_fields=fields)
    assert body == {
        "content": "Hi.",
        "generation_settings/n_predict": 9,
        "timings/prompt_n": 1,
    }


def test_each_uncached_prompt_has_a_salt_of_its_own() -> None:
    salts = {asked(prompt="a", cache_prompt=False)[0].content.salt for _ in range(2)}
    assert len(salts) == 2
    assert "" not in salts
    assert asked(prompt="a")[0].content.salt == ""


def test_a_grammar_or_a_schema_holds_the_answer() -> None:
    assert "lark_grammar" in asked(prompt="a", grammar='root ::= "x"')[0].grammar
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    assert '"integer"' in asked(prompt="a", json_schema=schema)[0].grammar
    assert '"object"' in asked(prompt="a", json_schema={})[0].grammar


def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers() -> None:
    error = refusal(ask(says("x"), COMPLETION, {"prompt": [66] * 600, "stream": True}), 400)
    assert error["type"] == "exceed_context_size_error"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (600, 512)
