"""A small OpenAI-compatible server that says one word all the time, to test what measures."""

import json
from asyncio import Condition
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.listening import listening


@dataclass
class Speaker:
    """`per_chunk` tokens in a chunk; the usage in a chunk of its own, as OpenAI says it, or in the
    one that finishes, as llama-server does.

    stops_at: it breaks off after so many tokens.
    waits_at, for_prompts: after so many tokens it says nothing before so many prompts have come.
    key: who sends another one is refused; "" is none.
    bodies: all that it was asked for.
    """

    per_chunk: int = 1
    usage_apart: bool = True
    stops_at: int | None = None
    waits_at: int | None = None
    for_prompts: int = 0
    prompts: list[str] = field(default_factory=list)
    came: Condition = field(default_factory=Condition)
    key: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def application(self) -> Starlette:
        routes = [
            Route("/v1/models", self.models),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
        ]
        return Starlette(routes=routes)

    async def models(self, request: Request) -> Response:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            return JSONResponse({"error": {"message": "whose key?"}}, status_code=401)
        return JSONResponse({"object": "list", "data": [{"id": "speaker", "object": "model"}]})

    async def completions(self, request: Request) -> Response:
        body = await request.json()
        if body["model"] != "speaker":
            return JSONResponse({"error": {"message": "who?"}}, status_code=404)
        async with self.came:
            self.prompts.append(body["prompt"])
            self.came.notify_all()
        stream = self.stream(len(body["prompt"].split()), body["max_tokens"])
        return StreamingResponse(stream, media_type="text/event-stream")

    async def chat(self, request: Request) -> Response:
        """Says what it thinks, and then all that it was told."""
        body = await request.json()
        self.bodies.append(body)
        if body["model"] != "speaker":
            return JSONResponse({"error": {"message": "no model who"}}, status_code=404)
        text = " | ".join(message["content"] for message in body["messages"])
        if not body.get("stream"):
            message = {"role": "assistant", "content": text}
            return JSONResponse({"choices": [{"index": 0, "message": message}]})
        deltas = [{"reasoning_content": "Hm."}, *({"content": char} for char in text)]
        usage = {"prompt_tokens": len(body["messages"]), "completion_tokens": len(text)}
        events = [event({"choices": [{"index": 0, "delta": delta}]}) for delta in deltas]
        events += [event({"choices": [], "usage": usage}), "data: [DONE]\n\n"]
        return Response("".join(events), media_type="text/event-stream")

    async def stream(self, prompt_tokens: int, max_tokens: int) -> AsyncIterator[str]:
        for said in range(0, max_tokens, self.per_chunk):
            if self.stops_at is not None and said >= self.stops_at:
                return
            if said == self.waits_at:
                await self.all_came()
            text = " so" * min(self.per_chunk, max_tokens - said)
            yield event({"choices": [{"index": 0, "text": text, "finish_reason": None}]})
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": max_tokens}
        last = {"choices": [{"index": 0, "text": "", "finish_reason": "length"}]}
        if self.usage_apart:
            yield event({**last, "usage": None}) + event({"choices": [], "usage": usage})
        else:
            yield event({**last, "usage": usage})
        yield ": a comment\n\ndata: [DONE]\n\n"

    async def all_came(self) -> None:
        async with self.came:
            await self.came.wait_for(lambda: len(self.prompts) >= self.for_prompts)


def event(chunk: object) -> str:
    return f"data: {json.dumps(chunk)}\n\n"


@contextmanager
def speaking(speaker: Speaker) -> Iterator[str]:
    """Its base URL while it listens."""
    with listening(speaker.application()) as url:
        yield f"{url}/v1"
