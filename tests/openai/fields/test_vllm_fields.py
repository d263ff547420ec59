"""The fields that vLLM adds to OpenAI's: token ids, prompt logprobs, banned words."""

from typing import Any

import pytest

from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import END, plays, says
from tests.ingress.protocols.chats import folded, plain
from tests.ingress.protocols.completions import COMPLETIONS
from tests.ingress.protocols.protocol import ROOMY
from tests.openai.chat.chatting import asked, refused, streamed, whole
from tests.openai.scripts import scoring, telling
from tests.text.cards import card, metaspace

TOKENIZER = TextTokenizer(card())


def test_token_ids_come_back_for_prompt_and_answer() -> None:
    body = whole(says("Hello"), return_token_ids=True)
    [choice] = body["choices"]
    [request] = asked({})
    assert body["prompt_token_ids"] == list(request.prompt_ids)
    assert choice["token_ids"] == [*TOKENIZER.encode("Hello", False), END]
    chunks = streamed(says("Hello"), return_token_ids=True)
    assert chunks[0]["prompt_token_ids"] == body["prompt_token_ids"]
    assert folded(chunks) == plain(body)


def test_ids_of_text_that_is_held_back_come_at_once() -> None:
    chunks = streamed(says("Hello wor|d"), return_token_ids=True, stop="world")
    deltas = [part for chunk in chunks for part in chunk["choices"] if part.get("token_ids")]
    assert len(deltas) == len(TOKENIZER.encode("Hello wor|d", False)) + 1


def test_tokens_can_be_named_by_their_ids() -> None:
    fields = {"logprobs": True, "top_logprobs": 2, "return_tokens_as_token_ids": True}
    entry = whole(says("a"), **fields)["choices"][0]["logprobs"]["content"][0]
    [drawn] = TOKENIZER.encode("a", False)
    assert entry["token"] == f"token_id:{drawn}"
    assert entry["top_logprobs"][1]["token"] == f"token_id:{END}"
    assert entry["bytes"] == [97]


def test_a_prompt_is_scored_for_chat_in_vllms_form() -> None:
    body = whole(scoring(says("x")), ROOMY, prompt_logprobs=2, n=2)
    first, second, *_ = scores = body["prompt_logprobs"]
    [request, sibling] = asked({"prompt_logprobs": 2, "n": 2})
    assert (request.prompt_logprobs, sibling.prompt_logprobs) == (2, None)
    assert (first, len(scores)) == (None, len(request.prompt_ids))
    token = request.prompt_ids[1]
    assert second[str(END)] == {"logprob": -0.25, "rank": 1, "decoded_token": "<|im_end|>"}
    assert second[str(token)] == {
        "logprob": -float(token),
        "decoded_token": TOKENIZER.decode([token]),
    }


def test_a_stream_tells_how_much_of_its_prompt_is_read_and_how_fast_it_is() -> None:
    """The fields are those that llama-server's web page sends."""
    fields = {"return_progress": True, "timings_per_token": True}
    chunks = streamed(telling(says("Hello")), **fields)
    told = [chunk["prompt_progress"] for chunk in chunks if "prompt_progress" in chunk]
    [request] = asked({})
    total = len(request.prompt_ids)
    assert [(progress["processed"], progress["cache"], progress["total"]) for progress in told] == [
        (processed, 4, total) for processed in (4, total // 2, total)
    ]
    timed = [chunk["timings"] for chunk in chunks if "timings" in chunk]
    assert len(timed) == len(chunks) - 1  # all but the first
    assert timed[-1]["predicted_n"] == len(TOKENIZER.encode("Hello", False)) + 1
    assert (timed[-1]["cache_n"], timed[-1]["prompt_n"]) == (4, total - 4)
    assert folded(chunks) == plain(whole(says("Hello"), **fields))
    assert [chunk["choices"][0]["delta"] for chunk in chunks if "prompt_progress" in chunk] == [
        {}
    ] * 3  # a role would be joined to the one before


def test_fields_that_are_not_requested_are_absent() -> None:
    for chunk in streamed(telling(says("Hello")), return_progress=False):
        assert not {"prompt_progress", "timings"} & chunk.keys()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, None),
        ({"stop": ["x", "lo"]}, "lo"),
        ({"stop_token_ids": [END]}, None),  # the model's own end
        ({"stop_token_ids": [END], "ignore_eos": True}, END),
        ({"max_tokens": 1}, None),
    ],
)
def test_a_choice_has_its_stop_reason(fields: dict[str, Any], reason: object) -> None:
    body = whole(says("Hello"), **fields)
    assert body["choices"][0].get("stop_reason") == reason
    assert folded(streamed(says("Hello"), **fields)) == plain(body)


def test_banned_words_are_banned_with_and_without_a_space() -> None:
    [request] = asked({"bad_words": ["Hello", " Hello", "\u65e5"]})
    texts = [TOKENIZER.decode(ids) for ids in request.sampling.bad_words]
    assert texts == ["Hello", " Hello", "\u65e5", " \u65e5"]


def test_banned_words_of_a_tokenizer_with_spaces_of_its_own() -> None:
    [request] = asked({"bad_words": ["Hello"]}, tokenizer=metaspace())
    words = request.sampling.bad_words
    assert words
    assert len(set(words)) == len(words)


def test_special_tokens_show_if_so_wanted() -> None:
    ids = [*TOKENIZER.encode("a", False), TOKENIZER.special_id("<|im_start|>") or 0]
    for skip, text in ((True, "a"), (False, "a<|im_start|>")):
        body = whole(plays(ids), skip_special_tokens=skip)
        assert body["choices"][0]["message"]["content"] == text


def test_words_for_what_is_done_anyway_are_taken() -> None:
    fields: dict[str, Any] = {
        "use_beam_search": False,
        "length_penalty": 1.0,
        "spaces_between_special_tokens": True,
        "store": False,
        "guided_decoding_backend": "auto",
        "media_io_kwargs": {},
    }
    assert whole(says("x"), **fields, add_special_tokens=False, include_reasoning=True)
    assert COMPLETIONS.whole(says("x"), **fields, best_of=1, suffix="")


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": []},
        {"top_p": 0},
        {"top_logprobs": 0},
        {"max_tokens": -1, "reasoning_control": True, "cache_prompt": True},
        {"thinking_budget_tokens": -1, "backend_sampling": False},
        {"reasoning_budget_tokens": -1, "sse_ping_interval": 1, "verbose": False, "lora": []},
        {"id_slot": 0, "cache_prompt": False, "n_predict": 100, "n_keep": -1},
        {"samplers": [], "response_fields": [""], "typ_p": 1, "backend_sampling": True},
        {"speculative.n_max": 16, "speculative.n_min": 0, "speculative.types": ["ngram-simple"]},
        {"prediction": {"type": "content", "content": "Hello"}},
        {"prediction": {"type": "content", "content": [{"type": "text", "text": "Hello"}]}},
        {"messages": [{"role": "user", "content": "Hi", "type": "text"}]},
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}},
                        {"type": "text", "text": "Ho", "prompt_cache_breakpoint": {}},
                    ],
                }
            ]
        },
        {
            "messages": [
                {"role": "user", "content": "Hi"},
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "Hm",
                    "thinking_blocks": [{"type": "thinking", "thinking": "Hm"}],
                    "provider_specific_fields": {"a": 1},
                },
                {"role": "user", "content": "Well?"},
            ]
        },
    ],
)
def test_what_well_known_clients_send_is_served(fields: dict[str, object]) -> None:
    """Harnesses, gateways, llama-server's web page: hints, and other names of what is done."""
    assert whole(says("Hello"), **fields)["choices"][0]["message"]["content"] == "Hello"


def test_two_budgets_of_thoughts_are_one_too_many() -> None:
    budgets = {"thinking_budget_tokens": 5, "thinking_token_budget": 5}
    assert refused(**budgets)["param"] == "thinking_budget_tokens"
