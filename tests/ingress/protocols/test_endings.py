"""Answers of every protocol: where they end, why they say they did, and the tokens they count."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from deployments.contract.events import CacheSource, TokenEvent
from deployments.contract.requests import GenerationRequest
from deployments.text.tokens.tokenizer import TextTokenizer
from tests.ingress.engines import END, plays, says
from tests.ingress.protocols.every import EACH, EACH_CALLER
from tests.ingress.protocols.messages import thinker
from tests.ingress.protocols.protocol import ROOM, Caller, Protocol, Said
from tests.ingress.protocols.replies import CALL, THOUGHT, call, tools
from tests.text.cards import card

TOKENIZER = TextTokenizer(card())
HELLO = "Hello world"
SHOWN, HELD = "Hello wo|ST", "OP| and on"  # two tokens at least of one stop string
TWO_LINES = "<think>\nI know\n\nwhat.\n</think>\n\nI know.\n\nWhat?"


def check(protocol: Protocol, said: Said, ending: str, text: str) -> None:
    """Some protocol does not tell a stop string from an end."""
    is_told = protocol.names_stops or not ending.startswith("stop ")
    assert (said.ending, said.text) == (ending if is_told else "end", text)


@EACH
@pytest.mark.parametrize(
    ("spoken", "fields", "ending", "text"),
    [
        (HELLO, {}, "end", HELLO),
        ("", {}, "end", ""),
        (HELLO, {"stop": ["x", "wor"]}, "stop wor", "Hello "),
        (HELLO, {"limit": 1}, "limit", TOKENIZER.decode(TOKENIZER.encode(HELLO, False)[:1])),
    ],
)
def test_an_answer_says_why_it_ended(
    protocol: Protocol, spoken: str, fields: dict[str, Any], ending: str, text: str
) -> None:
    check(protocol, protocol.says(says(spoken), **protocol.fields(**fields)), ending, text)


@EACH_CALLER
@pytest.mark.parametrize(
    ("spoken", "fields", "ending", "text", "n_calls"),
    [
        (CALL, {}, "call", "", 1),
        (f"{CALL}\nThere.", {}, "call", "There.", 1),
        (call("stocks"), {}, "end", call("stocks"), 0),
        (CALL[:50], {}, "end", "", 1),
        (CALL, {"limit": 30}, "limit", "", 1),
        (CALL, {"stop": ["ln"]}, "stop ln", "", 1),
        (f"{THOUGHT}Yes.", {}, "end", "Yes.", 0),
        (f"{THOUGHT}Yes.", {"stop": ["42"]}, "end", "Yes.", 0),
        (TWO_LINES, {"stop": ["\n\n"]}, "stop \n\n", "I know.", 0),  # as lm-eval asks
    ],
)
def test_a_call_and_a_thought_end_it_or_do_not(
    protocol: Caller, spoken: str, fields: dict[str, Any], ending: str, text: str, n_calls: int
) -> None:
    asked = {**tools(protocol), **protocol.fields(**fields)}
    said = protocol.says(says(spoken), thinker(ROOM), **asked)
    check(protocol, said, ending, text)
    assert len(said.calls) == n_calls


@EACH
def test_a_stop_string_across_tokens_never_shows(protocol: Protocol) -> None:
    ids = [*TOKENIZER.encode(SHOWN, False), *TOKENIZER.encode(HELD, False)]
    said = protocol.says(plays(ids), **protocol.fields(stop=["|STOP|"], limit=400))
    check(protocol, said, "stop |STOP|", "Hello wo")
    assert said.output_tokens < len(ids)


@EACH
def test_broken_utf8_becomes_replacement_characters(protocol: Protocol) -> None:
    lone = next(i for i in range(END + 300) if TOKENIZER.token_bytes(i) == b"\xf0")
    assert protocol.says(plays([lone, lone])).text == "\ufffd\ufffd"


@EACH
def test_a_character_of_many_tokens_comes_in_one_piece(protocol: Protocol) -> None:
    events = protocol.streamed(says("\U0001f642\U0001f643"))
    assert "\ufffd" not in json.dumps(events, ensure_ascii=False)


@EACH
def test_every_token_of_prompt_and_answer_is_counted(protocol: Protocol) -> None:
    [request] = protocol.asked()
    n_prompt = len(request.prompt_ids)
    said = protocol.says(says("Hi."))
    assert (said.prompt_tokens, said.cached_tokens) == (n_prompt, min(4, n_prompt - 1))
    assert said.output_tokens == len(TOKENIZER.encode("Hi.", False)) + 1


@EACH
def test_the_places_of_cached_tokens_are_told_where_there_are_several(protocol: Protocol) -> None:
    """SDKs take them beside the sum."""
    by_source = (CacheSource.DEVICE, 1), (CacheSource.DISK, 3)

    async def script(request: GenerationRequest) -> AsyncIterator[TokenEvent]:
        async for event in says("Hi.")(request):
            yield replace(event, cached_by_source=by_source)

    for answer in (protocol.whole(script), protocol.streamed(script, **protocol.tells_all)):
        assert '"cached_tokens_details": {"device": 1, "disk": 3}' in json.dumps(answer)
    assert "cached_tokens_details" not in json.dumps(protocol.whole(says("Hi.")))


@EACH
def test_the_limit_is_cut_to_what_the_context_leaves(protocol: Protocol) -> None:
    small = replace(protocol.card, context_length=64)
    [request] = protocol.asked(small, **protocol.fields(limit=10**6))
    assert request.max_tokens == 64 - len(request.prompt_ids)
