"""A conversation with a model over OpenAI's chat completions, which any server has."""

import json
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from serve_app.command.client.connection import Connection
from serve_app.command.errors import CommandError, Exit

THINK = {"true": "medium", "on": "medium", "false": "none", "off": "none"}
EFFORTS = ("none", "minimal", "low", "medium", "high")


@dataclass(frozen=True, slots=True)
class ChatPiece:
    """A piece of an answer as it comes: of its thoughts, or of its text."""

    text: str
    is_thought: bool = False


@dataclass(slots=True)
class Measured:
    """Moments of `time.perf_counter`, and the server's count of tokens; 0 where it says none."""

    began: float
    first: float = 0.0
    ended: float = 0.0
    prompt_tokens: int = 0
    tokens: int = 0

    def __str__(self) -> str:
        rest = max(self.ended - self.first, 1e-9)
        speed = f", {(self.tokens - 1) / rest:.1f} tokens/s" if self.tokens > 1 else ""
        return (
            f"{self.prompt_tokens} tokens in, first after {self.first - self.began:.2f} s; "
            f"{self.tokens} tokens out in {self.ended - self.began:.2f} s{speed}"
        )


@dataclass(slots=True)
class ChatSession:
    """fields: of each request, beside its messages. What was said stays in `messages`, also where
    an answer was interrupted.
    """

    connection: Connection
    model: str
    fields: dict[str, object] = field(default_factory=dict)
    messages: list[dict[str, str]] = field(default_factory=list)
    measured: Measured | None = None

    def set_system(self, text: str) -> None:
        self.messages = [said for said in self.messages if said["role"] != "system"]
        if text:
            self.messages.insert(0, {"role": "system", "content": text})

    def clear(self) -> None:
        self.messages = [said for said in self.messages if said["role"] == "system"]

    def ask(self, text: str) -> Generator[ChatPiece]:
        """Raises CommandError, as if nothing had been asked."""
        self.messages.append({"role": "user", "content": text})
        answer = ""
        try:
            for piece in self._stream():
                answer += "" if piece.is_thought else piece.text
                yield piece
        except CommandError:
            del self.messages[-1]
            raise
        except (KeyboardInterrupt, GeneratorExit):
            self.messages.append({"role": "assistant", "content": answer})
            raise
        self.messages.append({"role": "assistant", "content": answer})

    def _stream(self) -> Iterator[ChatPiece]:
        body = {
            **self.fields,
            "model": self.model,
            "messages": self.messages,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        self.measured = measured = Measured(time.perf_counter())
        with self.connection.events("/v1/chat/completions", body) as events:
            for event in events:
                if usage := event.get("usage"):
                    measured.prompt_tokens = usage.get("prompt_tokens", 0)
                    measured.tokens = usage.get("completion_tokens", 0)
                for choice in event.get("choices", ()):
                    for piece in _pieces(choice.get("delta") or {}):
                        measured.first = measured.first or time.perf_counter()
                        yield piece
        measured.ended = time.perf_counter()
        measured.first = measured.first or measured.ended


def _pieces(delta: dict[str, str | None]) -> Iterator[ChatPiece]:
    if thought := delta.get("reasoning_content") or delta.get("reasoning"):
        yield ChatPiece(thought, is_thought=True)
    if text := delta.get("content"):
        yield ChatPiece(text)


def complete(
    connection: Connection, model: str, prompt: str, fields: dict[str, object]
) -> Iterator[str]:
    """Yields the pieces of a completion. Raises CommandError."""
    body = {**fields, "model": model, "prompt": prompt, "stream": True}
    with connection.events("/v1/completions", body) as events:
        for event in events:
            for choice in event.get("choices", ()):
                if text := choice.get("text"):
                    yield text


def known_models(connection: Connection) -> list[str]:
    """Returns all names that requests may use, the default one first. Raises CommandError."""
    listed = connection.get("/v1/models").get("data") or []
    names = [entry["id"] for entry in listed]
    return [*names, *(alias for entry in listed for alias in entry.get("aliases") or ())]


def chosen_model(connection: Connection, named: str | None) -> str:
    """Returns the model that was named, or the first one. Raises CommandError."""
    known = known_models(connection)
    if named is None and not known:
        raise CommandError(f"{connection.url} serves no model", Exit.NO_MODEL)
    return known[0] if named is None else named


def effort(text: str) -> str:
    """Reads `--think`. Raises ValueError."""
    found = THINK.get(text.lower(), text.lower())
    if found not in EFFORTS:
        raise ValueError(f"must be true, false, or one of {', '.join(EFFORTS)}")
    return found


def response_format(text: str) -> dict[str, object]:
    """Reads `--format`: json, a JSON schema, or the file of one. Raises ValueError."""
    if text == "json":
        return {"type": "json_object"}
    try:
        schema = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
    except (OSError, ValueError) as error:
        raise ValueError("must be json, a JSON schema, or a file that has one") from error
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
