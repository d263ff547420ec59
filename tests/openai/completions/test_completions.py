"""Legacy completions: every form of prompt, echo, and legacy log-probabilities."""

import copy
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from tokenizers import AddedToken

from deployments.contract.events import FinishReason, TokenEvent
from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import END, Script, says
from tests.ingress.protocols import completions
from tests.ingress.protocols.completions import folded
from tests.openai.scripts import scoring
from tests.text.cards import byte_level, card

TOKENIZER = TextTokenizer(card())
OF = completions.COMPLETIONS
asked, answer, whole, streamed = OF.asked, OF.answer, OF.whole, OF.streamed


def test_the_body_has_every_field() -> None:
    body = whole(says("Hi."), prompt="Hello")
    assert body["id"].startswith("cmpl-")
    assert body["object"] == "text_completion"
    assert body["choices"] == [
        {"index": 0, "text": "Hi.", "logprobs": None, "finish_reason": "stop"}
    ]


def test_every_prompt_is_counted_and_answered_in_order() -> None:
    body = whole(says("a", "b", "c", "d"), prompt=[[1, 2, 3], [4, 5]], n=2)
    assert [choice["text"] for choice in body["choices"]] == ["a", "b", "c", "d"]
    assert body["usage"]["prompt_tokens"] == 5


def test_prompts_in_a_list_draw_as_if_alone() -> None:
    requests = asked(prompt=["a", "b"], n=2, seed=5)
    assert [request.sampling.seed for request in requests] == [5, 6, 5, 6]


def test_sixteen_tokens_by_default() -> None:
    assert whole(says("x" * 99), prompt="a")["usage"]["completion_tokens"] == 16


def test_logprobs_in_the_oldest_shape() -> None:
    logprobs = whole(says("ab"), prompt="x", logprobs=1)["choices"][0]["logprobs"]
    tokens = [TOKENIZER.decode([id_]) for id_ in TOKENIZER.encode("ab", False)] + ["<|im_end|>"]
    assert logprobs["tokens"] == tokens
    assert logprobs["text_offset"] == [len("".join(tokens[:i])) for i in range(len(tokens))]
    assert logprobs["token_logprobs"] == [-0.5] * len(tokens)
    assert logprobs["top_logprobs"][0] == {tokens[0]: -0.5, "<|im_end|>": -9999.0}


def test_echo_gives_the_prompt_back() -> None:
    assert whole(says(" you"), prompt="Hey", echo=True)["choices"][0]["text"] == "Hey you"
    ids = TOKENIZER.encode("Hey", False)
    assert whole(says(" you"), prompt=ids, echo=True)["choices"][0]["text"] == "Hey you"


def test_an_echo_has_the_logprobs_of_its_prompt() -> None:
    fields = {"prompt": "Hello you", "echo": True, "logprobs": 2}
    logprobs = whole(scoring(says(" and I")), **fields)["choices"][0]["logprobs"]
    ids = TOKENIZER.encode("Hello you", True)
    output = [*TOKENIZER.encode(" and I", False), END]
    tokens = [TOKENIZER.decode([id_], skip_special_tokens=False) for id_ in [*ids, *output]]
    assert logprobs["tokens"] == tokens
    assert logprobs["token_logprobs"] == [None, *(-float(id_) for id_ in ids[1:])] + [-0.5] * len(
        output
    )
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["top_logprobs"][1]["<|im_end|>"] == -0.25
    assert logprobs["text_offset"] == [len("".join(tokens[:i])) for i in range(len(tokens))]


def test_there_are_as_many_scores_as_tokens_also_where_the_end_is_drawn() -> None:
    """Who scores a continuation this way leaves out the last of them, whatever it was."""
    fields = {"prompt": [66, 67, 68], "echo": True, "logprobs": 1, "max_tokens": 1}
    body = whole(scoring(says("")), **fields)
    assert body["usage"]["completion_tokens"] == 1
    [choice] = body["choices"]
    assert choice["text"] == TOKENIZER.decode([66, 67, 68])
    assert choice["logprobs"]["token_logprobs"] == [None, -67.0, -68.0, -0.5]
    assert folded(streamed(scoring(says("")), **fields)) == [choice]


def test_no_tokens_score_a_prompt() -> None:
    fields = {"prompt": [66, 67, 68], "echo": True, "logprobs": 1, "max_tokens": 0}
    body = whole(scoring(says("x")), **fields)
    [choice] = body["choices"]
    assert choice["text"] == TOKENIZER.decode([66, 67, 68])
    assert choice["logprobs"]["token_logprobs"] == [None, -67.0, -68.0]
    assert choice["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 0


def test_every_choice_has_its_prompts_scores() -> None:
    fields = {"prompt": [[66, 67], [68, 69]], "n": 2, "prompt_logprobs": 1}
    choices = whole(scoring(says("x")), **fields)["choices"]
    scored = [list(choice["prompt_logprobs"][1]) for choice in choices]
    assert scored == [[str(END), "67"]] * 2 + [[str(END), "69"]] * 2
    assert all(choice["prompt_logprobs"][0] is None for choice in choices)


def test_scores_of_prompts_count_for_the_bytes_of_their_client() -> None:
    fields = {"prompt": [[66] * 30] * 8, "n": 128, "prompt_logprobs": 20, "max_tokens": 1}
    refused = answer(scoring(says("x")), **fields)
    assert refused.status_code == 413, refused.text
    assert answer(scoring(says("x")), **{**fields, "n": 1}).status_code == 200


def test_an_echo_and_scores_ask_for_what_the_hungrier_wants() -> None:
    fields = {"prompt": "ab", "echo": True, "logprobs": 1, "prompt_logprobs": 3}
    assert [request.prompt_logprobs for request in asked(**fields)] == [3]
    choice = whole(scoring(says("x")), **fields)["choices"][0]
    tokens = TOKENIZER.encode("ab", True)
    assert len(choice["logprobs"]["top_logprobs"][1]) == 2  # the prompt's own, and one more
    assert len(choice["prompt_logprobs"][1]) == 3 + (tokens[1] not in (END, 65, 66))


def test_the_best_of_as_many_are_all() -> None:
    body = whole(says("a", "b"), prompt="x", n=2, best_of=2)
    assert [choice["text"] for choice in body["choices"]] == ["a", "b"]


def liking(script: Script, *logprobs: float) -> Script:
    """The script, in which all tokens of a choice have one log-probability."""

    async def liked(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        logprob = logprobs[int(request.request_id.rpartition("-")[2])]
        async for event in script(request):
            assert event.logprobs is not None
            scores = tuple(replace(score, logprob=logprob) for score in event.logprobs)
            yield replace(event, logprobs=scores)

    return liked


def test_the_best_have_the_highest_log_probability_a_token() -> None:
    """The usage counts all that were made."""
    script = liking(says("a", "long and unlikely", "c", "d"), -2.0, -0.25, -0.5, -1.0)
    body = whole(script, prompt="x", n=2, best_of=4)
    assert [choice["text"] for choice in body["choices"]] == ["long and unlikely", "c"]
    assert [(choice["index"], choice["logprobs"]) for choice in body["choices"]] == [
        (0, None),
        (1, None),
    ]
    texts = ("a", "long and unlikely", "c", "d")
    n_tokens = sum(len(TOKENIZER.encode(text, False)) + 1 for text in texts)
    assert body["usage"]["completion_tokens"] == n_tokens
    two = whole(script, prompt=["x", "y"], best_of=2, logprobs=1, echo=False)
    assert [choice["text"] for choice in two["choices"]] == ["long and unlikely", "c"]
    assert two["choices"][0]["logprobs"]["token_logprobs"][0] == -0.25


def test_special_tokens_of_a_prompt_can_be_left_out() -> None:
    plain, bare = (asked(prompt="Hello", add_special_tokens=add) for add in (True, False))
    assert plain[0].prompt_ids == bare[0].prompt_ids  # this tokenizer adds none


def test_the_stop_string_can_stay() -> None:
    for name in ("include_stop_str_in_output", "no_stop_trim"):
        body = whole(says("Hello world"), prompt="x", stop="lo", **{name: True})
        assert body["choices"][0]["text"] == "Hello"
        assert body["choices"][0]["stop_reason"] == "lo"


def infilling() -> ModelCard:
    tokenizer = copy.deepcopy(byte_level())
    marks = ["<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"]
    tokenizer.add_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks])
    return card(tokenizer)


def test_a_suffix_is_shown_to_a_model_that_fills_in() -> None:
    [request] = asked(infilling(), prompt="def f(", suffix="):")
    shown = TextTokenizer(infilling()).decode(request.prompt_ids, skip_special_tokens=False)
    assert shown == "<|fim_prefix|>def f(<|fim_suffix|>):<|fim_middle|>"


def test_a_mark_ends_the_middle() -> None:
    on = infilling()
    tokenizer = TextTokenizer(on)
    marks = {tokenizer.special_id(f"<|fim_{name}|>") for name in ("prefix", "suffix", "middle")}
    [request] = asked(on, prompt="def f(", suffix="):", stop_token_ids=[5])
    assert set(request.stop_token_ids) == {5, *marks}
    for fields in ({"suffix": "):", "ignore_eos": True}, {}):
        [request] = asked(on, prompt="def f(", **fields)
        assert request.stop_token_ids == ()


@pytest.mark.parametrize(("fields", "reason"), [({}, None), ({"stop_token_ids": [5]}, 5)])
def test_only_a_stop_of_the_request_is_a_stop_reason(
    fields: dict[str, object], reason: int | None
) -> None:
    async def ends(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        end = request.stop_token_ids[0]
        yield TokenEvent(token_ids=(end,), finish_reason=FinishReason.STOP, stop_token_id=end)

    [choice] = whole(ends, infilling(), prompt="a", suffix="b", **fields)["choices"]
    assert (choice["finish_reason"], choice.get("stop_reason")) == ("stop", reason)
