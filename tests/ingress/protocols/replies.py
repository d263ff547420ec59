"""Replies of models and fields of requests: in each case a stream says what an answer does."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from deployments.contract.model_card import ModelCard
from tests.ingress.protocols.chats import CHATS
from tests.ingress.protocols.completions import COMPLETIONS
from tests.ingress.protocols.messages import MESSAGES
from tests.ingress.protocols.native import NATIVE
from tests.ingress.protocols.protocol import Protocol
from tests.ingress.protocols.responses import RESPONSES
from tests.text.cards import CHAT_TEMPLATE, card

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ARGUMENTS = '{"city": "K\u00f6ln \\"x\\"", "n": [1, 2]}'
THOUGHT = "<think>\nHm, 42 < 43 \u65e5?\n</think>\n\n"
THINKS = CHAT_TEMPLATE + "{# <think></think> #}"
OPENED = THINKS + "{% if add_generation_prompt %}<think>\n{% endif %}"


def call(name: str = "weather", arguments: str = ARGUMENTS) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


CALL, SECOND = call(), call("clock", "{}")
PLAIN = ["Hello \u65e5\u672c \U0001f642 world\u2028!", "", "\n\n def f(x):\n"]
THOUGHTS = [f"{THOUGHT}Yes.", THOUGHT, "<think>\nno end", "<think>", "a<think>b</think>c"]
CALLS = [CALL, f"{CALL}\n{SECOND}", f"Let me see.\n{CALL}", "<tool_call>\nno call at all"]
BROKEN = [call("stocks"), CALL[:50], "<tool_call>", "a < b"]
WORDS = [f"One. {CALL} Two. {CALL} Three.", f"{THOUGHT}{CALL}", f"{CALL}\nThere."]
ALL = f"{THOUGHT}Well.\n{CALL}\n{SECOND}"


@dataclass(frozen=True)
class Replies:
    """Each of the texts, said by the first choice to a request with each of the fields."""

    protocol: Protocol
    texts: Sequence[str]
    fields: Sequence[Mapping[str, Any]]
    others: Sequence[str] = ()  # what further choices say
    cards: Sequence[ModelCard] = ()
    sizes: Sequence[int] = (1, 3)  # tokens of an event


def tools(protocol: Any) -> dict[str, Any]:
    return {"tools": [protocol.tool("weather", SCHEMA), protocol.tool("clock", {"type": "object"})]}


LOGPROBS = {"logprobs": True, "top_logprobs": 2}
IDS = {"logprobs": True, "return_token_ids": True}
OF_CALLS: list[dict[str, Any]] = [
    {},
    {"n": 2},
    {**IDS, "top_logprobs": 1},
    {"parallel_tool_calls": False, "logprobs": True},
    {"stop": ["ln", "see"], **IDS},
    {"max_tokens": 9, "return_token_ids": True},
]
OF_ITEMS: list[dict[str, Any]] = [
    *({}, {"parallel_tool_calls": False}, {"max_output_tokens": 9}, {"stop": ["re", "Two"]}),
    {"reasoning": {"summary": "auto"}},
]
BLOCKS = {**tools(MESSAGES), "thinking": {"type": "adaptive"}}
HIDDEN = {**BLOCKS, "thinking": {"type": "adaptive", "display": "omitted"}}
OF_BLOCKS: list[Replies] = [
    Replies(MESSAGES, [*PLAIN, *THOUGHTS, *CALLS, *BROKEN, *WORDS, ALL], [BLOCKS]),
    Replies(MESSAGES, ["one two three"], [{**BLOCKS, "stop_sequences": ["never", " tw"]}]),
    Replies(MESSAGES, THOUGHTS[:1], [{**BLOCKS, "stop_sequences": ["42"]}, HIDDEN]),
    Replies(MESSAGES, WORDS[2:], [{**BLOCKS, "stop_sequences": ["There"]}]),
    Replies(MESSAGES, [CALL], [{**BLOCKS, "stop_sequences": ["ln"]}]),
    Replies(
        MESSAGES, [f"{THOUGHT}A. {CALL}"], [{**BLOCKS, "max_tokens": n} for n in range(1, 140, 6)]
    ),
]
REPLIES = [
    Replies(
        CHATS,
        [*PLAIN, "stop stopped"],
        [
            *({}, {"n": 3}, LOGPROBS, {"stop": ["wor", "pp"], "logprobs": True}, {"max_tokens": 3}),
            {"stop": "o", "include_stop_str_in_output": True, "n": 2},
        ],
        others=["dlrow \u65e5", "third"],
    ),
    Replies(
        CHATS,
        [*THOUGHTS, "No thought"],
        [
            *({}, IDS, {"reasoning_format": "none"}, {"n": 2, "max_tokens": 7}),
            {"stop": ["3", "Yes"], "logprobs": True},
        ],
        others=THOUGHTS[:1],
        cards=[
            replace(card(), chat_template=template, dialect="hermes")
            for template in (THINKS, OPENED)
        ],
    ),
    Replies(
        CHATS,
        [*CALLS, *BROKEN, ""],
        [{**tools(CHATS), **fields} for fields in OF_CALLS],
        others=[CALL],
    ),
    Replies(
        COMPLETIONS,
        ["Hello world"],
        [
            {"prompt": "Hello"},
            {"prompt": "Hello", "n": 2, "echo": True},
            {"prompt": ["Hello", "stop"], "n": 2, "logprobs": 2},
            {"prompt": [66, 67], "stop": "or", "logprobs": 0},
            {"prompt": [[66, 67], [68]], "max_tokens": 2, "echo": True},
            {"prompt": ["Hello", "stop"], "n": 2, "echo": True, "logprobs": 1},
            {"prompt": "Hello", "echo": True, "logprobs": 0, "max_tokens": 0},
            {"prompt": [[66, 67], [68]], "n": 2, "return_token_ids": True, "logprobs": 1},
            {"prompt": "Hello", "return_token_ids": True, "echo": True, "stop": "wor"},
        ],
        others=["stop \u65e5", "third", "x"],
    ),
    Replies(
        RESPONSES,
        [*PLAIN, *THOUGHTS[:2], *CALLS, *WORDS[:2]],
        [
            *({}, {"include": ["message.output_text.logprobs"], "top_logprobs": 2}),
            *({**tools(RESPONSES), **fields} for fields in OF_ITEMS),
        ],
        sizes=(1, 7),
    ),
    *OF_BLOCKS,
    Replies(
        NATIVE,
        ["Hello world"],
        [
            {"return_tokens": True, "seed": 3, **fields}
            for fields in (
                *({}, {"stop": ["wor"]}, {"n_predict": 2}, {"n_predict": 0}, {"n_probs": 2}),
                {"n_probs": 1, "post_sampling_probs": True, "n_predict": 3},
                {"prompt": ["Hello", [66, 67]], "n_cmpl": 2},
                *({"n_indent": 2}, {"n_indent": 2, "n_probs": 1, "stop": "nothing"}),
            )
        ],
        others=["a\n  b\nc d\n", "third \u65e5\n", "x\n\n   yz"],
        sizes=(1, 3, 99),
    ),
]


def cases(groups: Sequence[Replies]) -> Iterator[tuple[Replies, str, Mapping[str, Any], int]]:
    for group in groups:
        for text in group.texts:
            for fields in group.fields:
                for size in group.sizes:
                    yield group, text, fields, size
