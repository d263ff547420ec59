"""OpenAI's legacy completions: choices whose parts are texts."""

import copy
import json
from collections.abc import Mapping
from typing import Any, ClassVar

import httpx
from openai.types import Completion
from pydantic import TypeAdapter

from tests.ingress.protocols.chats import CHATS, said_in
from tests.ingress.protocols.protocol import Protocol, Said
from tests.openai.serving import COMPLETIONS as PATH
from tests.openai.serving import chunks_of
from tests.text.cards import card

COMPLETION = TypeAdapter(Completion)


class Completions(Protocol):
    name = "completions"
    path = PATH
    hello: ClassVar[Mapping[str, Any]] = {"prompt": "Hello"}
    card = card()
    tells_all = CHATS.tells_all
    several: ClassVar[Mapping[str, Any]] = {"n": 2}

    def check(self, text: str) -> None:
        strict(json.loads(text))

    def events_of(self, response: httpx.Response) -> list[Any]:
        return [strict(chunk) for chunk in chunks_of(response)]

    def told(self, body: Any) -> Any:
        return {"choices": body["choices"], "usage": body["usage"]}

    def fold(self, events: list[Any]) -> Any:
        return {"choices": folded(events), "usage": events[-1]["usage"]}

    def said(self, told: Any) -> Said:
        choice = told["choices"][0]
        return said_in(choice, choice["text"], told["usage"])


def strict(body: Any) -> Any:
    """Held to the SDK's type, which knows nothing of the nulls that OpenAI has for an echo."""
    known = copy.deepcopy(body)
    for choice in known["choices"]:
        if choice["finish_reason"] is None:
            choice["finish_reason"] = "stop"  # the type is the unary answer's
        if choice["logprobs"] and choice["logprobs"]["token_logprobs"][:1] == [None]:
            for entries in choice["logprobs"].values():
                del entries[0]
    COMPLETION.validate_python(known, strict=True)
    return body


def folded(chunks: list[Any]) -> list[Any]:
    choices: dict[int, Any] = {}
    for chunk in chunks:
        for part in chunk["choices"]:
            choice = choices.setdefault(part["index"], {"text": "", "logprobs": None})
            for name, value in part.items():
                choice[name] = _added(name, choice.get(name), value)
    return [choices[index] for index in sorted(choices)]


def _added(name: str, before: Any, value: Any) -> Any:
    match name:
        case "text" | "token_ids":
            return value if before is None else before + value
        case "logprobs" if before is not None:
            return before if value is None else {n: before[n] + value[n] for n in before}
    return value


COMPLETIONS = Completions()
