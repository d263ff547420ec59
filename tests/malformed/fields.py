"""Values that fields of requests must not have, by the name that a refusal gives the field."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Values = Mapping[str, Sequence[object]]


@dataclass(frozen=True)
class Endpoint:
    """`right` is a body that is answered.

    `wrong` has values for what its keys name: "messages[0].role" is within a field. `inner` has
    values for whole fields, of which a part is wrong: its keys name the parts.
    """

    protocol: str
    path: str
    right: Mapping[str, Any]
    wrong: Values
    inner: Values = field(default_factory=dict)


def function(**fields: object) -> list[dict[str, Any]]:
    """A chat's tools with one function of these fields."""
    return [{"type": "function", "function": {"name": "f", **fields}}]


def turn(**fields: object) -> list[dict[str, Any]]:
    return [{"role": "user", "content": "x", **fields}]


def part(**fields: object) -> list[dict[str, Any]]:
    return turn(content=[fields])


HELLO = {"role": "user", "content": "Hello"}
TOOL = function()[0]
FORMAT = {"type": "json_schema", "json_schema": {"name": "x"}}
UNKNOWN_RESPONSE = "resp_unknown"
SAMPLING: Values = {
    "temperature": ("1", True, [], -0.1, 2.1, 10**400),
    "top_p": ("x", 1.1, -0.1, {}),
    "top_k": (1.5, -2, "3", 2.0),
    "min_p": (-0.5, 1.5, "x"),
    "seed": (2**63, -(2**63) - 1, "x", 1.0),
    "repetition_penalty": (0, 2.5, "x"),
    "presence_penalty": (3, "x", []),
    "frequency_penalty": (-3, "x", {}),
    "stream": ("yes", 1, []),
    "stop": (5, "", ["a"] * 33, {}),
    "model": (5, [], {}, True),
    "cache_salt": ("", 5),
    "user": (5, "u" * 513),
    "metadata": ([], "x", {str(number): "" for number in range(17)}),
    "service_tier": ("first", 5),
    "priority": ("x", 2.5, 2**31),
    "prompt_cache_retention": ("1y",),
    "unknown_field": (1, None),
}
IN_SAMPLING: Values = {
    "stop[0]": ([""],),
    "stop[1]": (["a", 5], ["a", ""]),
    "metadata.a": ({"a": 1},),
}
CHOICES: Values = {
    **SAMPLING,
    "stream_options": ({"include_usage": True}, 5, []),
    "n": (0, 129, "1", True, 1.5),
    "max_tokens": (-2, "5", 1.5, True),
    "min_tokens": (-1, "5"),
    "stop_token_ids": ("x", 5, [1] * 1025, [10**6], [2**70]),
    "ignore_eos": (1, "x"),
    "logit_bias": ({"x": 1}, [], 5, {"99999": 1}, {str(n): 1 for n in range(4097)}),
    "response_format": (5, "json"),
    "thinking_token_budget": (-1, 5),
}
IN_CHOICES: Values = {
    **IN_SAMPLING,
    "stop_token_ids[0]": ([-1], ["x"]),
    "logit_bias.5": ({"5": 101}, {"5": "x"}),
    "response_format.type": ({}, {"type": "xml"}, {"type": "structural_tag"}),
    "response_format.json_schema": ({"type": "json_schema"},),
    "response_format.schema": ({**FORMAT, "schema": {}},),
}
CONTENT = "messages[0].content"
MESSAGES: Values = {
    "messages": (None, "x", 5, {}, []),
    "messages[0]": (None, "x", 5, []),
    "messages[0].role": (None, 5, "alien", []),
    CONTENT: (None, 5, {}, [], True),
    f"{CONTENT}[0]": ("x", 5),
}
IN_MESSAGES: Values = {
    "messages[0].role": ([{"content": "x"}],),
    CONTENT: ([{"role": "user"}],),
    f"{CONTENT}[0].text": (part(type="text"), part(type="text", text=1)),
    f"{CONTENT}[0].type": (part(type="poem"), part(type="poem", text="x"), part(text="x")),
}
