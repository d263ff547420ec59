"""The output items of a response, in the order they are generated, and their stream events.

A unary response and a streamed one have the same items.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from deployments.openai.responses.call_outputs import CallOutput, call_output
from deployments.openai.responses.events import Events
from deployments.openai.responses.items import Json, Status
from deployments.openai.responses.offered_tools import OfferedTool
from deployments.openai.responses.output_item import OutputItem
from deployments.text.dialects.parsing.pieces import (
    CallArguments,
    CallStart,
    ContentPiece,
    Piece,
    Thought,
)

Encrypt = Callable[[str], str]


class PartItem(OutputItem):
    """An item whose text is its only part."""

    done: ClassVar[str]
    part_event: ClassVar[str] = "response.content_part"
    part_index: ClassVar[str] = "content_index"

    @abstractmethod
    def part(self) -> Json: ...

    def begin(self) -> bytes:
        return super().begin() + self._part_event("added", {})

    def end(self, status: Status) -> bytes:
        done = self._events.event(self.done, {**self._position(), **self._whole()})
        return done + self._part_event("done", self._part_status(status)) + super().end(status)

    def _part_event(self, verb: str, more: Json) -> bytes:
        fields = {**self._position(), "part": self.part(), **more}
        return self._events.event(f"{self.part_event}.{verb}", fields)

    def _part_status(self, status: Status) -> Json:
        return {}

    def _whole(self) -> Json:
        return {"text": self.text}

    def _position(self) -> Json:
        return {**super()._position(), self.part_index: 0}

    def _parts(self) -> list[Json]:
        return [] if self.status == "in_progress" and not self._texts else [self.part()]


class MessageOutput(PartItem):
    prefix = "msg"
    delta = "response.output_text.delta"
    done = "response.output_text.done"

    def __init__(self, index: int, events: Events) -> None:
        super().__init__(index, events)
        self._logprobs: list[object] = []

    def add_with_logprobs(self, text: str, logprobs: Sequence[object]) -> bytes:
        self._texts.append(text)
        self._logprobs += logprobs
        return self._events.delta(self._delta_head, text, logprobs)

    def part(self) -> Json:
        return {
            "type": "output_text",
            "text": self.text,
            "annotations": [],
            "logprobs": self._logprobs,
        }

    def value(self) -> Json:
        head = {"id": self.id, "type": "message", "status": self.status, "role": "assistant"}
        return {**head, "content": self._parts()}

    def _whole(self) -> Json:
        return {"text": self.text, "logprobs": self._logprobs}


class ReasoningOutput(PartItem):
    """`encrypt` makes its `encrypted_content`, once it is whole."""

    prefix = "rs"
    delta = "response.reasoning_text.delta"
    done = "response.reasoning_text.done"

    def __init__(self, index: int, events: Events, encrypt: Encrypt | None) -> None:
        super().__init__(index, events)
        self._encrypt = encrypt
        self._encrypted: Json = {}

    def part(self) -> Json:
        return {"type": "reasoning_text", "text": self.text}

    def end(self, status: Status) -> bytes:
        if self._encrypt is not None:
            self._encrypted = {"encrypted_content": self._encrypt(self.text)}
        return super().end(status)

    def value(self) -> Json:
        head = {"id": self.id, "type": "reasoning", "status": self.status}
        return {**head, **self._shown(), **self._encrypted}

    def _shown(self) -> Json:
        return {"summary": [], "content": self._parts()}


class SummarizedReasoningOutput(ReasoningOutput):
    """The thought as its own summary, which is all that many clients show and send back."""

    delta = "response.reasoning_summary_text.delta"
    done = "response.reasoning_summary_text.done"
    part_event = "response.reasoning_summary_part"
    part_index = "summary_index"

    def part(self) -> Json:
        return {"type": "summary_text", "text": self.text}

    def _part_status(self, status: Status) -> Json:
        return {"status": status} if status == "incomplete" else {}

    def _shown(self) -> Json:
        return {"summary": self._parts(), "content": []}


@dataclass(frozen=True, slots=True)
class ReasoningForm:
    """How thoughts are shown: as text or as a summary, encrypted beside that where clients ask."""

    is_summary: bool = False
    encrypt: Encrypt | None = None


class Output:
    """Only the last item is open."""

    def __init__(
        self,
        events: Events,
        reasoning: ReasoningForm,
        offered: Mapping[str, OfferedTool],
    ) -> None:
        """`offered` has the tools under the names that the model knows."""
        self.items: list[OutputItem] = []
        self._events = events
        self._reasoning = reasoning
        self._offered = offered
        self._last: OutputItem | None = None

    def add(self, pieces: Sequence[Piece], logprobs: Sequence[object]) -> bytes:
        """Only messages have log-probabilities; they go with the first piece of text."""
        if logprobs and not pieces:
            pieces = (ContentPiece(""),)
        return b"".join(self._add(piece, logprobs) for piece in pieces)

    def _add(self, piece: Piece, logprobs: Sequence[object]) -> bytes:
        match piece:
            case ContentPiece(text):
                if isinstance(self._last, MessageOutput):
                    return self._last.add_with_logprobs(text, logprobs)
                message = MessageOutput(len(self.items), self._events)
                return self._begin(message) + message.add_with_logprobs(text, logprobs)
            case Thought(text):
                if isinstance(self._last, ReasoningOutput):
                    return self._last.add(text)
                return self._begin(self._new_reasoning()) + self._add(piece, ())
            case CallStart(_, call_id, name):
                tool = self._offered[name]
                return self._begin(call_output(len(self.items), self._events, call_id, tool))
            case CallArguments(_, text):
                assert isinstance(self._last, CallOutput)
                return self._last.add(text)

    def end(self, status: Status) -> bytes:
        """Closes the last item, which may be cut short. An empty answer is one empty message."""
        if self._last is None:
            return self._begin(MessageOutput(0, self._events)) + self.end(status)
        return self._last.end(status)

    def fail(self) -> None:
        """Marks the last item as incomplete: the response has failed."""
        if self._last is not None:
            self._last.status = "incomplete"

    def values(self) -> list[Json]:
        return [item.value() for item in self.items]

    def _new_reasoning(self) -> ReasoningOutput:
        form = self._reasoning
        kind = SummarizedReasoningOutput if form.is_summary else ReasoningOutput
        return kind(len(self.items), self._events, form.encrypt)

    def _begin(self, item: OutputItem) -> bytes:
        ended = b"" if self._last is None else self._last.end("completed")
        self._last = item
        self.items.append(item)
        return ended + item.begin()
