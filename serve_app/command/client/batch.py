"""`manta run-batch`: answers a file of requests in OpenAI's batch form, over any server.

An answer is written as soon as it is there. The same command goes on where it was interrupted.
"""

import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import click
import httpx
from rich.console import Console
from rich.progress import Progress

from serve_app.command.client.connection import KEY_NEEDED, api_key, server_url
from serve_app.command.client.server_options import connecting
from serve_app.command.errors import CommandError, Exit

PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"),
    *("/v1/score", "/v1/rerank", "/v1/classify"),
)
OVERLOAD = (408, 429, 502, 503, 504, 529)  # which another moment may have gone
N_TRIES, FIRST_PAUSE_S = 6, 0.5
OK = 200


@dataclass(frozen=True, slots=True)
class BatchLine:
    custom_id: str
    path: str
    body: Mapping[str, Any]


@click.command("run-batch")
@click.option(
    "-i",
    "--input-file",
    type=click.Path(path_type=Path),
    required=True,
    help="Requests, one a line, as OpenAI's batches have them",
)
@click.option(
    "-o",
    "--output-file",
    type=click.Path(path_type=Path),
    required=True,
    help="Answers, one a line; those that are there already are not asked for again",
)
@click.option("--model", "-m", help="For requests that name none")
@click.option(
    "--max-concurrency",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Most requests at once",
)
@connecting
def run_batch(
    input_file: Path,
    output_file: Path,
    model: str | None,
    max_concurrency: int,
    url: str | None,
    api_key: str | None,
) -> None:
    """Answers a file of requests: {"custom_id": "a", "method": "POST", "url":
    "/v1/chat/completions", "body": {...}}. Each answer is a line, as it comes. What failed is asked
    again by the same command.
    """
    lines = read_lines(input_file, model)
    done = keep_answers(output_file)
    left = [line for line in lines if line.custom_id not in done]
    try:
        failed = asyncio.run(_run(left, output_file, url, api_key, max_concurrency))
    except KeyboardInterrupt:
        click.echo("interrupted: the same command goes on from here", err=True)
        raise
    click.echo(f"{len(lines) - failed} of {len(lines)} answered: {output_file}")
    if failed:
        raise CommandError(f"{failed} requests failed: their lines say why")


def read_lines(file: Path, model: str | None) -> list[BatchLine]:
    """Raises CommandError for the first line that is no request, before anything is asked."""
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} can't be read: {error}") from error
    found: dict[str, BatchLine] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                read = _read(json.loads(line), model)
                if read.custom_id in found:
                    raise ValueError(f"custom_id {read.custom_id} was there before")
            except ValueError as error:
                raise CommandError(f"{file}:{number}: {error}") from error
            found[read.custom_id] = read
    return list(found.values())


def _read(read: object, model: str | None) -> BatchLine:
    match read:
        case {"method": method} if method != "POST":
            raise ValueError("method must be POST")
        case {"custom_id": str(custom_id), "url": str(path), "body": dict(body)}:
            if path not in PATHS:
                raise ValueError(f"url must be one of {', '.join(PATHS)}")
            if body.get("stream"):
                raise ValueError("a batch has no streams")
            return BatchLine(custom_id, path, ({"model": model} if model else {}) | body)
    raise ValueError("must have custom_id, url and body")


def keep_answers(file: Path) -> set[str]:
    """Returns the ids that have an answer, and leaves their lines alone in the file."""
    if not file.exists():
        return set()
    kept: dict[str, str] = {}
    for line in file.read_text().splitlines():
        try:
            read = json.loads(line)
            if read["response"]["status_code"] == OK:
                kept[read["custom_id"]] = line
        except (ValueError, TypeError, KeyError):
            continue  # it failed, or was being written when its process ended
    beside = file.with_name(f"{file.name}.tmp")
    beside.write_text("".join(f"{line}\n" for line in kept.values()))
    os.replace(beside, file)
    return set(kept)


async def _run(
    lines: Iterable[BatchLine], file: Path, url: str | None, key: str | None, at_once: int
) -> int:
    """Returns how many failed."""
    left = list(lines)
    failed = 0
    found = api_key(key)
    headers = {} if found is None else {"authorization": f"Bearer {found}"}
    console = Console(stderr=True)
    with (
        file.open("a") as output,
        Progress(console=console, transient=True, disable=not console.is_terminal) as shown,
    ):
        task = shown.add_task("requests", total=len(left))
        async with httpx.AsyncClient(
            base_url=server_url(url), headers=headers, timeout=None
        ) as client:
            async for answer in _answers(client, left, at_once):
                failed += not _write(answer, output)
                shown.advance(task)
    return failed


async def _answers(
    client: httpx.AsyncClient, lines: Iterable[BatchLine], at_once: int
) -> AsyncIterator[Mapping[str, Any]]:
    """Yields answers as they come, some at a time."""
    waiting = iter(lines)
    running: set[asyncio.Task[Mapping[str, Any]]] = set()
    while True:
        while len(running) < at_once and (line := next(waiting, None)) is not None:
            running.add(asyncio.create_task(_answer(client, line)))
        if not running:
            return
        done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            yield task.result()


async def _answer(client: httpx.AsyncClient, line: BatchLine) -> Mapping[str, Any]:
    """Tries again where the server has too much to do. Raises CommandError for no server or key."""
    found: dict[str, Any] = {"id": f"batch_req_{uuid.uuid4().hex}", "custom_id": line.custom_id}
    pause = FIRST_PAUSE_S
    for is_last in [*[False] * (N_TRIES - 1), True]:
        try:
            answer = await client.post(line.path, json=line.body)
        except httpx.ConnectError as error:
            if is_last:
                message = f"no server answers at {client.base_url}"
                raise CommandError(message, Exit.NO_SERVER) from error
        except httpx.HTTPError as error:
            if is_last:
                failure = {"code": "request_failed", "message": str(error) or repr(error)}
                return {**found, "response": None, "error": failure}
        else:
            if answer.status_code == httpx.codes.UNAUTHORIZED:
                raise CommandError(KEY_NEEDED, Exit.WRONG_KEY)
            if is_last or answer.status_code not in OVERLOAD:
                return {**found, "response": _response(answer), "error": None}
        await asyncio.sleep(pause)
        pause *= 2
    raise AssertionError


def _response(answer: httpx.Response) -> Mapping[str, Any]:
    try:
        body = answer.json()
    except ValueError:
        body = answer.text
    request_id = answer.headers.get("x-request-id", "")
    return {"status_code": answer.status_code, "request_id": request_id, "body": body}


def _write(answer: Mapping[str, Any], output: IO[str]) -> bool:
    """Writes a whole line. Returns whether it is an answer."""
    output.write(json.dumps(answer, ensure_ascii=False) + "\n")
    output.flush()
    response = answer["response"]
    return response is not None and response["status_code"] == OK
