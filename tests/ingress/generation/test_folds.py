"""Whatever a model says and wherever its answer is cut: a stream folds to the unary answer."""

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.anthropic import serving as anthropic
from tests.anthropic import test_messages as messages
from tests.ingress.engines import says
from tests.openai.chat import chatting
from tests.openai.chat.test_tools import TOOLS
from tests.openai.responses import responding

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
texts = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
sizes = st.sampled_from((1, 3, 50))
stops = st.none() | st.lists(st.sampled_from(STOPS), min_size=1, max_size=2)
limits = st.none() | st.integers(1, 40)
few = settings(max_examples=30, derandomize=True, database=None, deadline=None)
THINKER = replace(chatting.thinker(), context_length=chatting.ROOM)


def asked(**fields: object) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def optional(**fields: object) -> st.SearchStrategy[dict[str, Any]]:
    """Some of the fields."""
    return st.fixed_dictionaries(
        {}, optional={name: st.just(value) for name, value in fields.items()}
    )


@few
@given(
    said=st.tuples(texts, texts),
    size=sizes,
    stop=stops,
    limit=limits,
    fields=optional(
        tools=TOOLS,
        n=2,
        logprobs=True,
        return_token_ids=True,
        include_stop_str_in_output=True,
        skip_special_tokens=False,
        reasoning_format="none",
    ),
)
def test_of_chats(
    said: tuple[str, str], size: int, stop: Any, limit: int | None, fields: dict[str, Any]
) -> None:
    fields |= asked(stop=stop, max_tokens=limit)
    script = says(*said, size=size)
    body = chatting.whole(script, THINKER, **fields)
    counted = {"stream_options": {"include_usage": True}}
    chunks = chatting.streamed(script, THINKER, **fields, **counted)
    assert chatting.folded(chunks) == chatting.plain(body)
    assert chunks[-1]["usage"] == body["usage"]


@few
@given(
    said=texts,
    size=sizes,
    stop=stops,
    limit=limits,
    fields=optional(tools=[anthropic.WEATHER], thinking={"type": "adaptive", "display": "omitted"}),
)
def test_of_messages(
    said: str, size: int, stop: Any, limit: int | None, fields: dict[str, Any]
) -> None:
    fields |= asked(stop_sequences=stop, max_tokens=limit)
    script = says(said, size=size)
    folded = messages.folded(anthropic.streamed(script, **fields))
    assert messages.nameless(folded) == messages.nameless(anthropic.whole(script, **fields))


@few
@given(
    said=texts, size=sizes, stop=stops, limit=limits, fields=optional(tools=[responding.WEATHER])
)
def test_of_responses(
    said: str, size: int, stop: Any, limit: int | None, fields: dict[str, Any]
) -> None:
    fields |= asked(stop=stop, max_output_tokens=limit)
    script = says(said, size=size)
    body = responding.whole(script, responding.THINKER, **fields)
    last = responding.streamed(script, responding.THINKER, **fields)[-1]
    assert responding.anonymous(last["response"]) == responding.anonymous(body)
