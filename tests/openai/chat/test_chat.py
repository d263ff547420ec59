"""Chat completions match the SDK's types, streamed and unary, and end at stop strings."""

from typing import Any

import pytest

from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import says
from tests.ingress.protocols.chats import plain
from tests.openai.chat.chatting import KNOWS_TOOLS, asked, streamed, whole
from tests.openai.serving import HELLO
from tests.text.cards import CHAT_TEMPLATE, card

TOKENIZER = TextTokenizer(card())


def test_the_unary_body_has_every_field() -> None:
    body = whole(says("Hi."))
    prompt = TOKENIZER.render_chat(HELLO["messages"])
    prompt_tokens = len(TOKENIZER.encode(prompt, False))
    output_tokens = len(TOKENIZER.encode("Hi.", False)) + 1
    assert body["id"].startswith("chatcmpl-")
    assert body["object"] == "chat.completion"
    assert body["model"] == "tiny"
    assert body["system_fingerprint"].startswith("fp_")
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hi.", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    assert body["usage"] == {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": output_tokens,
        "total_tokens": prompt_tokens + output_tokens,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def test_a_stream_opens_with_the_role_and_ends_with_an_empty_delta() -> None:
    chunks = streamed(says("Hi there"))
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert len({chunk["created"] for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert deltas[0] == {"role": "assistant", "content": "", "refusal": None}
    assert deltas[-1] == {}
    assert reasons == [None] * (len(chunks) - 1) + ["stop"]


def test_usage_comes_last_with_no_choices_and_null_before() -> None:
    chunks = streamed(says("Hi"), stream_options={"include_usage": True})
    assert chunks[-1]["choices"] == []
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


def test_running_usage_grows() -> None:
    chunks = streamed(says("Hi there you"), stream_options={"continuous_usage_stats": True})
    counts = [chunk["usage"]["completion_tokens"] for chunk in chunks[1:]]
    assert counts == sorted(counts)
    assert counts[-1] == len(TOKENIZER.encode("Hi there you", False)) + 1


def test_choices_of_one_prompt_count_it_once() -> None:
    one, three = whole(says("a", "b", "c")), whole(says("a", "b", "c"), n=3)
    assert [choice["message"]["content"] for choice in three["choices"]] == ["a", "b", "c"]
    assert three["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
    assert three["usage"]["completion_tokens"] == 3 * one["usage"]["completion_tokens"]
    assert three["usage"]["prompt_tokens_details"] == one["usage"]["prompt_tokens_details"]


def test_logprobs_have_bytes_and_no_infinity() -> None:
    entries = plain(whole(says("\u20ac!"), logprobs=True, top_logprobs=2))[0]["logprobs"]["content"]
    assert bytes(byte for entry in entries for byte in entry["bytes"]) == "\u20ac!".encode()
    assert entries[0]["top_logprobs"][1] == {
        "token": "<|im_end|>",
        "logprob": -9999.0,
        "bytes": list(b"<|im_end|>"),
    }


def test_choice_i_draws_with_seed_plus_i() -> None:
    requests = asked({"seed": 2**63 - 1, "n": 2})
    assert [request.sampling.seed for request in requests] == [2**63 - 1, 0]


def test_the_newer_name_of_the_limit_goes_first() -> None:
    limits = {"max_tokens": 99, "max_completion_tokens": 9, "min_tokens": 2}
    [request] = asked({**limits, "stop_token_ids": [3]})
    assert (request.max_tokens, request.min_tokens, request.stop_token_ids) == (9, 2, (3,))


def test_no_name_is_the_default_models() -> None:
    assert whole(says("Hi"), model="")["model"] == "tiny"


def test_without_a_limit_the_context_is_the_limit() -> None:
    [request] = asked({}, context_length=64)
    assert request.max_tokens == 64 - len(request.prompt_ids)


def test_numbers_beyond_all_use_ask_for_everything() -> None:
    [request] = asked({"top_k": 10**30, "min_tokens": 10**30}, context_length=64)
    assert request.sampling.top_k == 0
    assert request.min_tokens == request.max_tokens == 64 - len(request.prompt_ids)


def prompt_of(messages: list[Any], **fields: object) -> str:
    [request] = asked({"messages": messages, **fields}, chat_template=KNOWS_TOOLS)
    return TOKENIZER.decode(request.prompt_ids, skip_special_tokens=False)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ('{"city": "Paris", "uni', '{"city": "Paris"}'),
        ('{"city": "Par', "{}"),
        ('{"days": [1, {"a": 2', '{"days": [1, {"a": 2}]}'),
        ("{", "{}"),
        ("", "{}"),
    ],
)
def test_what_is_whole_of_a_call_that_was_cut_reaches_the_template(
    arguments: str, told: str
) -> None:
    function = {"name": "f", "arguments": arguments}
    call = {"id": "c1", "type": "function", "function": function}
    prompt = prompt_of([{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert f"f={told}<|im_end|>" in prompt


def test_messages_reach_the_template() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    prompt = prompt_of(
        [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": part} for part in "ab"]},
            {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
            {"role": "tool", "content": "42", "tool_call_id": "c1"},
        ],
        chat_template_kwargs={"shout": True},
    )
    assert prompt == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\na\nb<|im_end|>\n"
        '<|im_start|>assistant\nf={"a": 1}<|im_end|>\n<|im_start|>tool\n42<|im_end|>\n'
        "LOUD<|im_start|>assistant\n"
    )


@pytest.mark.parametrize("content", [None, "", []])
def test_a_refusal_is_what_an_answer_without_content_said(content: object) -> None:
    answer = {"role": "assistant", "content": content, "refusal": "No."}
    assert "assistant\nNo.<|im_end|>" in prompt_of([answer])


def test_what_an_answer_cited_comes_again() -> None:
    url = {"url": "u", "title": "t", "start_index": 0, "end_index": 1}
    cited = [{"type": "url_citation", "url_citation": url}]
    answer = {"role": "assistant", "content": "So."}
    assert prompt_of([{**answer, "annotations": cited}]) == prompt_of([answer])


def test_verbosity_reaches_a_template_that_knows_it() -> None:
    template = f"{CHAT_TEMPLATE}{{{{ verbosity }}}}"
    [request] = asked({**HELLO, "verbosity": "high"}, chat_template=template)
    assert TextTokenizer(card()).decode(request.prompt_ids).endswith("\nhigh")
    assert asked({**HELLO, "verbosity": "low"})  # it is a hint for the others


def test_the_last_message_can_be_continued() -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Well,"}]
    assert prompt_of(messages, continue_final_message=True).endswith("assistant\nWell,")
    assert prompt_of(messages, add_generation_prompt=False).endswith("Well,<|im_end|>\n")


def test_identifiers_and_what_is_done_anyway_are_accepted() -> None:
    body = whole(
        says("x"),
        user="u",
        metadata={"a": "b"},
        safety_identifier="s",
        prompt_cache_key="k",
        store=False,
        prompt_cache_retention="24h",
        prompt_cache_options={"mode": "explicit", "ttl": "30m", "prewarm": False},
        service_tier="priority",
        response_format={"type": "text"},
        tools=None,
        tool_choice="none",
        parallel_tool_calls=True,
        functions=[],
        function_call="auto",
        reasoning_effort="none",
        verbosity="medium",
        modalities=["text"],
    )
    assert body["service_tier"] == "default"
