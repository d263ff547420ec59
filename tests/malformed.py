"""Requests that are wrong, as data: what each must be refused with, and what its message names."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from deployments.ingress.settings import BODY_LIMIT

JSON = {"content-type": "application/json"}
TOO_LARGE = b" " * (BODY_LIMIT + 1)


@dataclass(frozen=True)
class Malformed:
    protocol: str
    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)
    status: int
    told: str  # is in the message

    def __str__(self) -> str:
        start = self.body[:40].decode("latin-1").encode("ascii", "backslashreplace").decode()
        return f"{self.protocol} {self.method} {self.path} {self.status} {self.told} {start}"


@dataclass(frozen=True)
class Endpoint:
    """`wrong` has values for a field of the body; a path names an inner one: "messages[0].role".

    `right` is a body that is answered.
    """

    protocol: str
    path: str
    right: Mapping[str, Any]
    wrong: Mapping[str, Sequence[object]]


UNKNOWN_RESPONSE = "resp_unknown"
HELLO = {"role": "user", "content": "Hello"}
SAMPLING: Mapping[str, Sequence[object]] = {
    "temperature": ("1", True, [], -0.1, 2.1, 10**400),
    "top_p": ("x", 1.1, -1, {}),
    "top_k": (1.5, -2, "3", 2.0),
    "min_p": (-0.5, 1.5, "x"),
    "seed": (2**63, -(2**63) - 1, "x", 1.0),
    "repetition_penalty": (0, 2.5, "x"),
    "presence_penalty": (3, "x", []),
    "frequency_penalty": (-3, "x", {}),
    "stream": ("yes", 1, []),
    "stream_options": ({"include_usage": True}, 5, []),
    "stop": (5, "", [""], ["a", 5], ["a"] * 33, {}),
    "model": (5, [], {}, True),
    "cache_salt": ("", 5),
    "user": (5, "u" * 513),
    "metadata": ({"a": 1}, [], "x"),
    "service_tier": ("first", 5),
    "priority": ("x", 2.5),
    "unknown_field": (1, None),
}
CHOICES: Mapping[str, Sequence[object]] = {
    **SAMPLING,
    "n": (0, 129, "1", True, 1.5),
    "max_tokens": (-2, "5", 1.5, True),
    "min_tokens": (-1, "5"),
    "stop_token_ids": ([-1], [2**70], ["x"], "x", 5),
    "ignore_eos": (1, "x"),
    "logit_bias": ({"5": 101}, {str(2**70): 1}, {"5": "x"}, {"x": 1}, [], 5),
    "response_format": (5, {}, {"type": "xml"}, {"type": "json_schema"}),
}
CONTENT = "messages[0].content"
MESSAGES: Mapping[str, Sequence[object]] = {
    "messages": (None, "x", 5, {}, []),
    "messages[0]": (None, "x", 5, []),
    "messages[0].role": (None, 5, "alien", []),
    CONTENT: (5, {}, [], [5], True),
}
TOOL = {"type": "function", "function": {"name": "f"}}

ENDPOINTS = [
    Endpoint(
        "openai",
        "/v1/chat/completions",
        {"messages": [HELLO], "max_tokens": 4},
        {
            **CHOICES,
            **MESSAGES,
            "messages[0].name": (5, []),
            "messages[0].surprise": (1,),
            f"{CONTENT}[0]": ({"type": "text"}, {"type": "text", "text": 5}, {}, {"type": "poem"}),
            "max_completion_tokens": (0, "x"),
            "logprobs": (1, "x"),
            "top_logprobs": (-1, 21, "x", 1),
            "tools": (5, {}, [5], [{}], [{"type": "function"}], [TOOL, TOOL]),
            "tool_choice": ("always", 5, {}, "required"),
            "chat_template_kwargs": (5, [], "x"),
            "add_generation_prompt": ("x",),
            "continue_final_message": ("x",),
        },
    ),
    Endpoint(
        "openai",
        "/v1/completions",
        {"prompt": "x", "max_tokens": 4},
        {
            **CHOICES,
            "prompt": (
                None,
                "",
                [],
                [""],
                ["a", 3],
                [[]],
                [10**6],
                [2**70],
                [-1],
                [True],
                [1.0],
                {},
                5,
            ),
            "echo": ("x", 1),
            "logprobs": (6, -1, True, "x"),
            "suffix": (5, []),
            "best_of": (0, 1000, "x"),
        },
    ),
    Endpoint(
        "openai",
        "/v1/responses",
        {"input": "x", "max_output_tokens": 4, "store": False},
        {
            **SAMPLING,
            "input": (None, [], 5, {}, [5], [{}]),
            "instructions": (5, []),
            "max_output_tokens": (0, "x", 1.5),
            "previous_response_id": (5, UNKNOWN_RESPONSE, "r" * 513),
            "store": ("x", 1),
            "include": ("x", ["x"], 5),
            "truncation": ("x", 5),
            "tools": (5, [5], [{}], [{"type": "function"}]),
            "tool_choice": ("always", 5, "required"),
            "text": (5, {"format": 5}, {"format": {"type": "xml"}}),
            "reasoning": (5, {"effort": "some"}),
            "top_logprobs": (21, -1, "x"),
        },
    ),
    Endpoint(
        "anthropic",
        "/v1/messages",
        {"model": "tiny", "max_tokens": 4, "messages": [HELLO]},
        {
            **MESSAGES,
            "model": (None, 5, "", []),
            "max_tokens": (None, -1, "x", 1.5, True),
            "system": (5, {}, [5], [{}]),
            "stop_sequences": ("x", [5], [""], ["a"] * 33),
            "temperature": (1.1, -0.1, "x", True),
            "top_p": (-1, 1.1, "x"),
            "top_k": (-1, 1.5, "x"),
            "stream": ("x", 1),
            "metadata": (5, {"user_id": 5}),
            "tools": (5, {}, [5], [{}], [{"name": "f"}]),
            "tool_choice": (5, {}, {"type": "some"}, {"type": "any"}),
            "thinking": (5, {}, {"type": "on"}, {"type": "enabled"}),
            "service_tier": ("priority", 5),
            "unknown_field": (1,),
        },
    ),
    Endpoint(
        "anthropic",
        "/v1/messages/count_tokens",
        {"model": "tiny", "messages": [HELLO]},
        {**MESSAGES, "model": (None, 5), "system": (5, [5]), "tools": (5, [5])},
    ),
    Endpoint(
        "llama",
        "/completion",
        {"prompt": "x", "n_predict": 4},
        {
            "prompt": (None, [], {}, 5, [[]], [1.5], [-1], [10**6], [2**70]),
            "n_predict": (-2, "x", 1.5),
            "temperature": (-1, "x", True),
            "top_k": (-2, 1.5, "x"),
            "top_p": (1.5, -1, "x"),
            "typical_p": (2, "x"),
            "mirostat": (3, "x", 1.5),
            "samplers": (5, {}, [5]),
            "dry_base": (0.5, "x"),
            "n_probs": (-1, 101, "x"),
            "stop": (5, [5], [""]),
            "grammar": (5, []),
            "json_schema": (5, "x", []),
            "stream": ("x", 1),
            "cache_prompt": ("x", 1),
            "id_slot": (-2, "x"),
            "seed": ("x", 1.5),
            "logit_bias": (5, "x"),
            "unknown_field": (1,),
        },
    ),
    Endpoint(
        "llama",
        "/tokenize",
        {"content": "x"},
        {"content": (None, 5, {}, [[]], [1.5], [10**6], [2**70]), "add_special": ("x", 1)},
    ),
    Endpoint(
        "llama",
        "/detokenize",
        {"tokens": [1]},
        {"tokens": (None, "x", 5, ["x"], [-1], [10**6], [2**70])},
    ),
    Endpoint("llama", "/apply-template", {"messages": [HELLO]}, MESSAGES),
]
# Of any endpoint: the body, and what its message must have.
NO_JSON: Sequence[tuple[bytes, str]] = (
    (b"", "not JSON"),
    (b"   ", "not JSON"),
    (b"{", "line 1 column 2"),
    (b'{\n"a": }', "line 2 column 6"),
    (b'{"a": 1,}', "not JSON"),
    (b'{"a": 1} {}', "not JSON"),
    (b"{'a': 1}", "not JSON"),
    (b'{"a": 01}', "not JSON"),
    (b'{"a": "line\nend"}', "not JSON"),
    (b'{"a": "\\x"}', "not JSON"),
    (b"messages=hello", "not JSON"),
    (b"[]", "object"),
    (b"null", "object"),
    (b"5", "object"),
    (b'"text"', "object"),
    (b'{"a": NaN}', "NaN"),
    (b'{"a": -Infinity}', "Infinity"),
    (b'{"a": 1e999}', "too large"),
    (b'{"a": ' + b"9" * 5000 + b"}", "too long"),
    (b'{"a": "\xff"}', "UTF-8"),
    (b"\xff\xfe{\x00}\x00", "UTF-8"),
    (b"\xef\xbb\xbf{}", "BOM"),
    (b'{"a": "\\ud800"}', "surrogate"),
    (b'{"\\udfff": 1}', "surrogate"),
    (b'{"twice": 1, "twice": 1}', "twice"),
    (b"[" * 100_000, "deep"),
    (b'{"a":' * 200 + b"1" + b"}" * 200, "deep"),
)
UNSAID = ("", "application/x-www-form-urlencoded")
NO_MEDIA: Sequence[Mapping[str, str]] = (
    {},
    {"content-type": ""},
    {"content-type": "text/plain"},
    {"content-type": "application/x-www-form-urlencoded"},
    {"content-type": "application/json; charset=latin-1"},
    {"content-type": "application/json", "content-encoding": "gzip"},
)


def cases() -> Iterator[Malformed]:
    for endpoint in ENDPOINTS:
        yield from _of_fields(endpoint)
        for body, told in NO_JSON:
            yield _post(endpoint, body, told)
        for headers in NO_MEDIA:
            if endpoint.protocol == "llama" and headers.get("content-type", "") in UNSAID:
                continue  # it is JSON there
            told = "encoding" if "content-encoding" in headers else "application/json"
            yield _post(endpoint, b"{}", told, 415, headers)
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            yield Malformed(endpoint.protocol, method, endpoint.path, JSON, b"", 405, method)
        yield Malformed(endpoint.protocol, "POST", endpoint.path + "//", JSON, b"{}", 404, "POST")
    for protocol in dict.fromkeys(endpoint.protocol for endpoint in ENDPOINTS):
        first = next(candidate for candidate in ENDPOINTS if candidate.protocol == protocol)
        yield _post(first, TOO_LARGE, str(BODY_LIMIT), 413)
        unknown = {**first.right, "model": "nobody's"}
        yield _post(first, json.dumps(unknown).encode(), "nobody's", 404)


def _of_fields(endpoint: Endpoint) -> Iterator[Malformed]:
    for path, values in endpoint.wrong.items():
        for value in values:
            body = json.loads(json.dumps(endpoint.right))
            _put(body, path, value)
            told = UNKNOWN_RESPONSE if value == UNKNOWN_RESPONSE else path.split("[")[0]
            yield _post(endpoint, json.dumps(body).encode(), told, 400)


def _put(body: Any, path: str, value: object) -> None:
    """Puts the value where the path says; lists are made as long as it takes."""
    parts = [
        int(part) if part.isdigit() else part
        for part in path.replace("[", ".").replace("]", "").split(".")
    ]
    for part, following in pairwise(parts):
        if isinstance(following, int) and not isinstance(body[part], list):
            body[part] = [None]
        body = body[part]
    body[parts[-1]] = value


def _post(
    endpoint: Endpoint,
    body: bytes,
    told: str,
    status: int = 400,
    headers: Mapping[str, str] = JSON,
) -> Malformed:
    return Malformed(endpoint.protocol, "POST", endpoint.path, headers, body, status, told)


def message_of(protocol: str, status: int, body: Any) -> str:
    """The message of an error, once it has all that its protocol gives an error."""
    error = body["error"]
    match protocol:
        case "openai":
            assert set(body) == {"error"}
            assert set(error) == {"message", "type", "param", "code"}
        case "anthropic":
            assert set(body) == {"type", "error", "request_id"}
            assert (body["type"], set(error)) == ("error", {"type", "message"})
        case _:
            assert set(body) == {"error"}
            assert error.keys() - {"param"} == {"message", "type", "code"}
            assert error["code"] == status
    assert isinstance(error["message"], str)
    return str(error["message"])
