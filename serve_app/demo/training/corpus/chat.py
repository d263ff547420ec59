"""The shapes of the corpus: exchanges that skills write, chats made of them, what is expected."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from serve_app.demo.training.corpus.split import SeededDraw

Role = Literal["system", "user", "assistant", "tool"]
Value = str | int | float | bool
AFTER_CALLS = "The tools have answered."  # the thought before the answer


@dataclass(frozen=True)
class SampleCall:
    name: str
    arguments: Mapping[str, Value]

    def message(self) -> dict[str, object]:
        function = {"name": self.name, "arguments": dict(self.arguments)}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class Turn:
    role: Role
    text: str
    calls: tuple[SampleCall, ...] = ()
    thought: str = ""

    def message(self) -> dict[str, object]:
        message: dict[str, object] = {"role": self.role, "content": self.text}
        if self.calls:
            message["tool_calls"] = [call.message() for call in self.calls]
        if self.thought:
            message["reasoning_content"] = self.thought
        return message


@dataclass(frozen=True)
class Expect:
    """The marks of a right reply. `says`: each of these words; `exactly`: this and nothing else.

    `any_of`: at least so many of these. `thinks`: whether there is a thought before the answer.
    """

    says: tuple[str, ...] = ()
    any_of: tuple[str, ...] = ()
    least: int = 1
    exactly: str = ""
    sentences: int = 0
    words: int = 0  # at most; 0 for any number
    thinks: bool = False


@dataclass(frozen=True)
class Exchange:
    """One question and its answer, with the calls and their results that lead to it.

    `short` is the answer to use when one word is asked for; `exact` keeps the question as written.
    """

    question: str
    answer: str
    expect: Expect = Expect()
    short: str = ""
    exact: bool = False
    thought: str = ""
    calls: tuple[SampleCall, ...] = ()
    results: tuple[str, ...] = ()

    def turns(self) -> list[Turn]:
        turns = [Turn("user", self.question)]
        if self.calls:
            turns += [Turn("assistant", "", self.calls, self.thought)]
            turns += [Turn("tool", result) for result in self.results]
        thought = AFTER_CALLS if self.thought and self.calls else self.thought
        return [*turns, Turn("assistant", self.answer, thought=thought)]


@dataclass(frozen=True)
class SampleTool:
    name: str
    description: str
    properties: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    closed: bool = False

    def described(self) -> dict[str, object]:
        parameters: dict[str, object] = {"type": "object", "properties": dict(self.properties)}
        if self.required:
            parameters["required"] = list(self.required)
        if self.closed:
            parameters["additionalProperties"] = False
        function = {"name": self.name, "description": self.description, "parameters": parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class Talk:
    """The text of one skill: exchanges that belong together, and what they need around them."""

    exchanges: list[Exchange]
    system: str = ""
    tools: tuple[SampleTool, ...] = ()
    thinking: bool = False  # the prompt asks for a thought before the last answer

    @property
    def is_plain(self) -> bool:
        """Whether it can stand in one chat with others."""
        thought = any(exchange.thought for exchange in self.exchanges)
        return not (self.system or self.tools or self.thinking or thought)


@dataclass(frozen=True)
class Chat:
    turns: list[Turn]
    tools: tuple[SampleTool, ...] = ()
    thinking: bool = False

    def messages(self) -> list[dict[str, object]]:
        return [turn.message() for turn in self.turns]

    def described_tools(self) -> list[dict[str, object]] | None:
        return [tool.described() for tool in self.tools] or None


Skill = Callable[[SeededDraw], Talk]


def said(question: str, answer: str, *says: str, short: str = "", exact: bool = False) -> Exchange:
    """A question whose right answers have all of these words, or else the short one."""
    expect = Expect(says=says or ((short,) if short else ()))
    return Exchange(question, answer, expect, short, exact)


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
