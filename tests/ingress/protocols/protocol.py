"""A protocol as tests ask it. Each adapter of this folder knows the words and the forms of one."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import httpx

from deployments.contract.model_card import ModelCard
from deployments.contract.requests import GenerationRequest
from tests.ingress.edge import Asked, asked, protocol_of
from tests.ingress.engines import Script, says
from tests.openai.scripts import scoring
from tests.text.cards import card

ROOM = 4096  # tokens: tools take many in a prompt
ROOMY = card(context_length=ROOM)
SILENCE = b": keep-alive\n\n"


@dataclass(frozen=True)
class Said:
    """The words of an answer in any protocol: of its first choice, with the counts of its tokens.

    It ended by "end", "limit" or "call", or by the stop string that stands behind "stop ".
    """

    text: str
    ending: str
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    calls: tuple[tuple[str, str], ...] = ()  # names, and arguments as JSON


class Protocol(ABC):
    """`told` and `fold` make one value of an answer and of the stream that stands for it."""

    name: ClassVar[str]
    path: ClassVar[str]
    hello: ClassVar[Mapping[str, Any]]  # a request; the fields of a test come beside
    card: ClassVar[ModelCard] = ROOMY
    tells_all: ClassVar[Mapping[str, Any]] = {}  # asks a stream for all that an answer has
    words: ClassVar[Mapping[str, str]] = {"limit": "max_tokens", "stop": "stop"}
    names_stops: ClassVar[bool] = True
    several: ClassVar[Mapping[str, Any]] = {}  # asks for two choices, where there can be several
    silence: ClassVar[bytes] = SILENCE

    def __str__(self) -> str:
        return self.name

    @property
    def application(self) -> str:
        return protocol_of(self.path)

    def fields(self, **said: object) -> dict[str, Any]:
        """The fields by the protocol's own names."""
        return {self.words.get(name, name): value for name, value in said.items()}

    def ask(
        self, script: Script, /, *cards: ModelCard, headers: Any = None, **fields: object
    ) -> Asked:
        body = {**self.hello, **fields}
        return asked(self.path, body, *(cards or (self.card,)), script=script, headers=headers)

    def answer(self, script: Script, /, *cards: ModelCard, **fields: Any) -> httpx.Response:
        return self.ask(script, *cards, **fields).response

    def whole(self, script: Script, /, *cards: ModelCard, **fields: Any) -> Any:
        response = self.answer(script, *cards, **fields)
        assert response.status_code == 200, response.text
        self.check(response.text)
        return response.json()

    def streamed(self, script: Script, /, *cards: ModelCard, **fields: Any) -> list[Any]:
        response = self.answer(script, *cards, **{**fields, "stream": True})
        assert response.status_code == 200, response.text
        return self.events_of(response)

    def asked(self, *cards: ModelCard, **fields: Any) -> list[GenerationRequest]:
        """The requests that the engine gets."""
        found = self.ask(scoring(says("x")), *cards, **fields)
        assert found.response.status_code == 200, found.response.text
        return found.requests

    def refused(self, *cards: ModelCard, **fields: Any) -> Any:
        """The error of a request that is the client's fault."""
        return self.ask(says("x"), *cards, **fields).refusal()

    def check(self, text: str) -> None:
        """Holds an answer to the SDK's type, where there is one."""
        assert json.loads(text)

    @abstractmethod
    def events_of(self, response: httpx.Response) -> list[Any]:
        """The events of a stream, each strictly what the SDK says it is."""

    @abstractmethod
    def told(self, body: Any) -> Any: ...

    @abstractmethod
    def fold(self, events: list[Any]) -> Any: ...

    @abstractmethod
    def said(self, told: Any) -> Said: ...

    def says(self, script: Script, /, *cards: ModelCard, **fields: Any) -> Said:
        """The answer, which a stream says too."""
        whole = self.told(self.whole(script, *cards, **fields))
        events = self.streamed(script, *cards, **fields, **self.tells_all)
        assert self.fold(events) == whole
        return self.said(whole)

    def form(self, schema: object) -> dict[str, Any]:
        """The fields by which an answer has to fit the schema."""
        named = {"name": "n", "strict": True, "schema": schema}
        return {"response_format": {"type": "json_schema", "json_schema": named}}


class Caller(Protocol):
    """A protocol whose models call tools, and which counts a prompt's tokens."""

    count_path: ClassVar[str]

    @abstractmethod
    def tool(self, name: str, schema: object, **fields: object) -> dict[str, Any]: ...

    def choice(self, name: str, parallel: bool = True) -> dict[str, Any]:
        """The fields of "auto", "none", "required", or of the tool that has to be called."""
        chosen = name if name in ("auto", "none", "required") else self.named(name)
        return {"tool_choice": chosen, **({} if parallel else {"parallel_tool_calls": False})}

    def named(self, name: str) -> dict[str, Any]:
        return {"type": "function", "name": name}


def named_events(response: httpx.Response) -> list[Any]:
    """The events of a stream, each named by its type."""
    assert response.headers["content-type"].startswith("text/event-stream")
    *frames, rest = response.text.split("\n\n")
    assert rest == ""
    events = []
    for frame in frames:
        name, datum = frame.split("\n")
        event = json.loads(datum.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def piece_of(event: Any) -> str:
    """The text that an event adds to the first choice's."""
    match event:
        case {"choices": [{"delta": {"content": str(text)}}]} | {"choices": [{"text": str(text)}]}:
            return text
        case {"type": "content_block_delta", "delta": {"text": str(text)}}:
            return text
        case {"type": "response.output_text.delta", "delta": str(text)} | {"content": str(text)}:
            return text
    return ""


def data_in(stream: str) -> list[Any]:
    """All that is JSON in a stream."""
    lines = [line for line in stream.splitlines() if line.startswith("data: {")]
    return [json.loads(line.removeprefix("data: ")) for line in lines]


def last_error(stream: str) -> Any:
    """The error that a stream ends with."""
    last = data_in(stream)[-1]
    return last.get("error") or last["response"]["error"]
