"""Whatever a model says and wherever its answer is cut: a stream folds to the unary answer."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.contract.model_card import ModelCard
from tests.ingress.engines import says
from tests.ingress.protocols.chats import CHATS
from tests.ingress.protocols.every import CALLERS
from tests.ingress.protocols.messages import MESSAGES
from tests.ingress.protocols.protocol import ROOM, Caller
from tests.ingress.protocols.replies import REPLIES, Replies, cases, tools
from tests.ingress.protocols.responses import RESPONSES
from tests.openai.chat import chatting
from tests.openai.responses import responding
from tests.openai.scripts import scoring

CASES = [
    pytest.param(*case, id=f"{case[0].protocol}-{number}")
    for number, case in enumerate(cases(REPLIES))
]
PIECES = (
    "Hello ",
    "\n\n",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    '<tool_call>{"name": "clock", "arguments": {}}</tool_call>',
    '{"name": "weather", "argu',
    "\u65e5\u672c\U0001f642\u2028",
    "<|im_end|>",
    "x < y",
)
STOPS = ("Par", "</think>", "<tool_call>", "\n\n", "x", "name", "</tool_call>")
THINKERS: Mapping[Caller, ModelCard] = {
    CHATS: replace(chatting.thinker(), context_length=ROOM),
    RESPONSES: responding.THINKER,
    MESSAGES: MESSAGES.card,
}
OPTIONAL: Mapping[Caller, Mapping[str, Any]] = {
    CHATS: {
        "n": 2,
        "logprobs": True,
        "return_token_ids": True,
        "include_stop_str_in_output": True,
        "skip_special_tokens": False,
        "reasoning_format": "none",
    },
    RESPONSES: {},
    MESSAGES: {"thinking": {"type": "adaptive", "display": "omitted"}},
}


@pytest.mark.parametrize(("replies", "text", "fields", "size"), CASES)
def test_a_stream_folds_to_the_unary_answer(
    replies: Replies, text: str, fields: Mapping[str, Any], size: int
) -> None:
    script = scoring(says(text, *replies.others, size=size))
    protocol = replies.protocol
    for model in replies.cards or (protocol.card,):
        events = protocol.streamed(script, model, **fields, **protocol.tells_all)
        assert protocol.fold(events) == protocol.told(protocol.whole(script, model, **fields))


def requests(protocol: Caller) -> st.SearchStrategy[dict[str, Any]]:
    """Draws bodies with some of the fields."""
    stops = st.lists(st.sampled_from(STOPS), min_size=1, max_size=2)
    optional = {
        protocol.words.get("stop", "stop"): stops,
        protocol.words["limit"]: st.integers(1, 40),
        **{
            name: st.just(value)
            for name, value in {**tools(protocol), **OPTIONAL[protocol]}.items()
        },
    }
    return st.fixed_dictionaries({}, optional=optional)


texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@pytest.mark.parametrize("protocol", CALLERS, ids=str)
@settings(max_examples=30, derandomize=True, database=None, deadline=None)
@given(said=st.tuples(texts, texts), size=st.sampled_from((1, 3, 50)), data=st.data())
def test_it_does_so_whatever_is_said_and_asked(
    protocol: Caller, said: tuple[str, str], size: int, data: st.DataObject
) -> None:
    fields = data.draw(requests(protocol))
    script, model = says(*said, size=size), THINKERS[protocol]
    events = protocol.streamed(script, model, **fields, **protocol.tells_all)
    assert protocol.fold(events) == protocol.told(protocol.whole(script, model, **fields))
