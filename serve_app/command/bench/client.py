"""A streaming client of OpenAI's completions: plain sockets, because it shares cores with what it
measures. It takes the time of what comes and never raises for what a server does wrong.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from urllib.parse import urlsplit

TIMEOUT_S = 600.0  # of one answer
LINE_LIMIT = 1 << 20  # bytes of one line of an answer


# Every token is to be seen: one without text would look like a long gap. And none is the last one.
WHOLE = {"ignore_eos": True, "skip_special_tokens": False}


@dataclass(frozen=True, slots=True)
class Server:
    """url: OpenAI's base URL, such as http://127.0.0.1:8000/v1.
    chats: prompts are messages of chats.
    runs_on: it takes vLLM's fields, by which an answer has its full length.
    """

    name: str
    url: str
    model: str
    key: str | None = None
    chats: bool = False
    runs_on: bool = True


@dataclass(slots=True)
class TimedAnswer:
    """One streamed completion; moments of `time.perf_counter`.

    tokens: by the server's own count, and not the number of chunks.
    chunks: when each chunk with text came.
    error: why it is no whole answer.
    begun: the first text has come, or none will.
    """

    sent: float
    begun: asyncio.Event
    tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    chunks: list[float] = field(default_factory=list)
    ended: float = 0.0
    error: str = ""

    def come(self) -> None:
        """Notes that a chunk with text has come."""
        self.chunks.append(time.perf_counter())
        self.begun.set()

    @property
    def first(self) -> float:
        """Seconds to the first token."""
        return self.chunks[0] - self.sent

    def gaps(self) -> list[tuple[float, float]]:
        """(moment, seconds for one token) of each chunk but the first.

        No server says how many tokens a chunk carries: each counts as the stream's mean.
        """
        each = max(1.0, self.tokens / len(self.chunks)) if self.chunks else 1.0
        pairs = zip(self.chunks, self.chunks[1:], strict=False)
        return [(now, (now - before) / each) for before, now in pairs]


async def complete(
    server: Server, prompt: str, max_tokens: int, begun: asyncio.Event | None = None
) -> TimedAnswer:
    """One completion, of its full length whatever the model would rather do."""
    said = [{"role": "user", "content": prompt}]
    body: dict[str, object] = {
        **({"messages": said} if server.chats else {"prompt": prompt}),
        "model": server.model,
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        **(WHOLE if server.runs_on else {}),
    }
    sample = TimedAnswer(time.perf_counter(), begun or asyncio.Event())
    try:
        async with asyncio.timeout(TIMEOUT_S):
            await _read(server, body, sample)
        is_whole = sample.tokens == max_tokens or (sample.tokens and not server.runs_on)
        if not is_whole or not sample.chunks:
            sample.error = f"{sample.tokens} of {max_tokens} tokens, {len(sample.chunks)} chunks"
    except (OSError, EOFError, ValueError, LookupError) as error:
        sample.error = f"{type(error).__name__}: {error}"
    sample.ended = time.perf_counter()
    sample.begun.set()
    return sample


async def _read(server: Server, body: object, sample: TimedAnswer) -> None:
    done = False
    path = "chat/completions" if server.chats else "completions"
    async with aclosing(_lines(f"{server.url}/{path}", body, server.key)) as lines:
        async for line in lines:
            if line == b"data: [DONE]":
                done = True
            elif line.startswith(b"data: "):
                _take(json.loads(line[6:]), sample)
    if not done:
        raise EOFError("the stream ended without [DONE]")


def _take(chunk: dict[str, object], sample: TimedAnswer) -> None:
    match chunk:
        case {"error": error}:
            raise ValueError(str(error))
        case {"choices": [{"text": str(text)} | {"delta": {"content": str(text)}}, *_]} if text:
            sample.come()
        case {"choices": [{"delta": {"reasoning_content": str(text)}}, *_]} if text:
            sample.come()
        case {"choices": [{"delta": {"reasoning": str(text)}}, *_]} if text:
            sample.come()
    match chunk:
        case {"usage": {"completion_tokens": int(tokens), "prompt_tokens": int(prompt)}}:
            sample.tokens, sample.prompt_tokens = tokens, prompt
    match chunk:
        case {"usage": {"prompt_tokens_details": {"cached_tokens": int(cached)}}}:
            sample.cached_tokens = cached


async def first_model(url: str, key: str | None = None) -> str:
    """The first model of a server's list."""
    async with aclosing(_lines(f"{url}/models", None, key)) as lines:
        answer = b"".join([line async for line in lines])
    name: str = json.loads(answer)["data"][0]["id"]
    return name


async def _lines(url: str, body: object, key: str | None) -> AsyncGenerator[bytes, None]:
    """The lines of an answer, on a connection of its own. Raises OSError, EOFError, ValueError."""
    parts = urlsplit(url)
    secure = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port or (443 if secure else 80), ssl=secure, limit=LINE_LIMIT
    )
    try:
        writer.write(_request(parts.netloc, parts.path, body, key))
        async for line in _answer(reader):
            yield line
    finally:
        writer.close()


def _request(host: str, path: str, body: object, key: str | None) -> bytes:
    raw = b"" if body is None else json.dumps(body).encode()
    bearer = "" if key is None else f"authorization: Bearer {key}\r\n"
    head = (
        f"{'POST' if raw else 'GET'} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n"
        f"{bearer}content-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
    )
    return head.encode() + raw


async def _answer(reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
    """The lines of a body. Raises ValueError for any status but 200."""
    status = (await reader.readline()).split()
    headers = await _headers(reader)
    if status[1:2] != [b"200"]:
        said = b"".join([block async for block in _blocks(reader, headers)])
        raise ValueError(b" ".join([*status, said[:200]]).decode(errors="replace"))
    rest = b""
    async for block in _blocks(reader, headers):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r")
    yield rest


async def _headers(reader: asyncio.StreamReader) -> dict[str, str]:
    headers = {}
    while line := (await reader.readline()).decode().strip():
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip().lower()
    return headers


async def _blocks(
    reader: asyncio.StreamReader, headers: dict[str, str]
) -> AsyncGenerator[bytes, None]:
    """A body as it comes: in chunks, of a known length, or up to the end of the connection."""
    if headers.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline() or b"-", 16):
            yield (await reader.readexactly(size + 2))[:-2]
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    else:
        while block := await reader.read(LINE_LIMIT):
            yield block
