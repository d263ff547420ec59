"""Random and broken input over HTTP, through all protocols, with streams of others beside it:

    python -m tests.fuzz [--minutes 30] [--seed N] [--again FILE]

It starts a server with the demo's models. No process of its graph may end, none of the others'
streams may break, every answer is 200 or 4xx in JSON, and what is said under a strict schema fits
it. What fails is written to a file; `--again` sends the inputs of such a file once more.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from referencing.exceptions import Unresolvable
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.e2e.server import REPOSITORY, Server
from tests.engine.speech.converted import tiny_en
from tests.fuzz.doors import DOORS, HEARS, MESSAGES, SEES, TEXT, Door
from tests.fuzz.inputs import Input, Inputs, is_json

CLIENTS = 4
TIMEOUT_S = 180.0
WATCH_S = 2.0
MAX_SHOWN = 300  # characters of an answer that is not as it should be
PRESETS = f"""
version = 1
[*]
num-cpus = 0.2
load-on-startup = true
pinned = true
[{TEXT}]
model = {REPOSITORY}/serve_app/demo/model
[{SEES}]
model = {REPOSITORY}/serve_app/demo/vision
[{HEARS}]
model = {HEARS}
"""
WATCHED = {
    "openai": ("[^:]*", "openai"),
    "anthropic": ("[^:]*", "anthropic"),
    "llama": ("[^:]*", "llama"),
    "router": ("Router", "[^:]*"),
    "models": ("MantaModel", "[^:]*"),
}
# Of others: what each asks, and with what its stream ends.
STREAMS: Mapping[str, tuple[dict[str, Any], str]] = {
    "/v1/chat/completions": (
        {"model": TEXT, "messages": MESSAGES, "max_tokens": 200, "ignore_eos": True},
        "data: [DONE]",
    ),
    "/v1/messages": (
        {"model": TEXT, "messages": MESSAGES, "max_tokens": 200},
        "event: message_stop",
    ),
    "/completion": (
        {"model": TEXT, "prompt": "Once", "n_predict": 200, "ignore_eos": True},
        '"stop":true',
    ),
}
# What jsonschema says of schemas that our server reads in its own way.
CANT_JUDGE = (SchemaError, Unresolvable, re.error, OverflowError, RecursionError)
Pair = tuple[Input, Door]


class Findings:
    """Collects what was not as it should be, and counts how often all was."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.answers: Counter[tuple[str, str]] = Counter()  # by kind of input, and what came
        self.failures: list[str] = []

    def fail(self, what: str, *pairs: Pair) -> None:
        self.failures.append(what)
        with self._path.open("a") as file:
            for given, door in pairs:
                file.write(json.dumps({**given.saved(), "door": door.name, "why": what}) + "\n")


class Fuzz:
    def __init__(self, server: Server, findings: Findings, pairs: Iterator[Pair]) -> None:
        self._server = server
        self._findings = findings
        self._pairs = pairs
        self._asked: set[Pair] = set()  # and not answered yet
        self._pids = self._replicas()

    async def run(self, is_over: Callable[[], bool]) -> None:
        async with httpx.AsyncClient(base_url=self._server.url, timeout=TIMEOUT_S) as client:
            clients = [asyncio.create_task(self._ask_all(client, is_over)) for _ in range(CLIENTS)]
            beside = [asyncio.create_task(self._stream(client, path)) for path in STREAMS]
            beside.append(asyncio.create_task(self._watch()))
            await asyncio.gather(*clients)
            for task in beside:
                task.cancel()
            ended = await asyncio.gather(*beside, return_exceptions=True)
            for error in ended:
                if not isinstance(error, asyncio.CancelledError) and error is not None:
                    raise error
        self._check_processes()

    async def _ask_all(self, client: httpx.AsyncClient, is_over: Callable[[], bool]) -> None:
        while not is_over() and (pair := next(self._pairs, None)) is not None:
            self._asked.add(pair)
            try:
                await self._ask(client, *pair)
            except httpx.HTTPError as error:
                self._findings.fail(f"{pair[1].name}: {error!r}", pair)
            finally:
                self._asked.discard(pair)

    async def _ask(self, client: httpx.AsyncClient, given: Input, door: Door) -> None:
        body = door.body(given.value)
        if door.form:
            file = {"file": ("sound.wav", body.pop("file"))}
            answer = await client.post(door.path, data=body, files=file)
        else:
            answer = await client.post(door.path, json=body)
        self._findings.answers[given.kind, str(answer.status_code)] += 1
        if problem := _problem(answer, given, door):
            self._findings.fail(f"{door.name}: {problem}", (given, door))

    async def _stream(self, client: httpx.AsyncClient, path: str) -> None:
        body, end = STREAMS[path]
        while True:
            lines: list[str] = []
            asked = {**body, "stream": True}
            try:
                async with client.stream("POST", path, json=asked) as answer:
                    lines += [line async for line in answer.aiter_lines() if line]
            except httpx.HTTPError as error:
                lines.append(repr(error))
            whole = any(end in line for line in lines[-3:])
            self._findings.answers["streams of others", "whole" if whole else "broken"] += 1
            if not whole:
                what = f"a stream of {path} broke: {lines[-1:]}"[:MAX_SHOWN]
                self._findings.fail(what, *self._asked)
                await asyncio.sleep(WATCH_S)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            await asyncio.to_thread(self._check_processes)

    def _check_processes(self) -> None:
        now = self._replicas()
        for name, pids in self._pids.items():
            if pids != now[name]:
                what = f"a process of {name} ended: {sorted(pids)} -> {sorted(now[name])}"
                self._findings.fail(what, *self._asked)
        self._pids = now

    def _replicas(self) -> dict[str, set[int]]:
        return {name: {*self._server.replicas(*kind)} for name, kind in WATCHED.items()}


def _problem(answer: httpx.Response, given: Input, door: Door) -> str:
    """Returns why an answer is not one that a client may get; "" if it is."""
    try:
        told = answer.json()
    except ValueError:
        return f"{answer.status_code} without JSON: {answer.text[:MAX_SHOWN]}"
    if answer.status_code == 200 and door.said is not None:
        return _misfit(door.said(told), given.value)
    if answer.status_code == 200 or 400 <= answer.status_code < 500:
        return ""
    return f"{answer.status_code}: {answer.text[:MAX_SHOWN]}"


def _misfit(said: str | None, schema: Any) -> str:
    if said is None:
        return ""
    try:
        value = json.loads(said)
    except ValueError as failure:
        return f"{said[:MAX_SHOWN]!r} is no JSON: {failure}"
    try:
        Draft202012Validator.check_schema(schema)
        error = next(Draft202012Validator(schema).iter_errors(value), None)
    except CANT_JUDGE:
        return ""
    return "" if error is None else f"{said[:MAX_SHOWN]!r} does not fit: {error.message}"


def _pairs(seed: int) -> Iterator[Pair]:
    inputs, rng = Inputs(seed), random.Random(seed)
    while True:
        given = inputs.next()
        if isinstance(given.value, bytes) or is_json(given.value):
            yield given, rng.choice(DOORS[given.kind])


def _saved(path: Path) -> Iterator[Pair]:
    for line in path.read_text().splitlines():
        saved = json.loads(line)
        given = Input.of_saved(saved)
        door = next(door for door in DOORS[given.kind] if door.name == saved["door"])
        yield given, door


def fuzz(server: Server, pairs: Iterator[Pair], findings: Findings, minutes: float) -> None:
    ends = time.monotonic() + minutes * 60
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), transient=True
    ) as bar:
        task = bar.add_task("fuzzing", total=minutes * 60)

        def is_over() -> bool:
            left = ends - time.monotonic()
            failed = len(findings.failures)
            bar.update(task, completed=minutes * 60 - left, description=f"{failed} failures")
            return left <= 0

        asyncio.run(Fuzz(server, findings, pairs).run(is_over))


def report(findings: Findings, path: Path) -> bool:
    """Prints what came; returns whether all holds."""
    console = Console(width=120)
    table = Table("input", "answers")
    for kind in sorted({kind for kind, _ in findings.answers}):
        counts = {what: n for (of, what), n in sorted(findings.answers.items()) if of == kind}
        table.add_row(kind, ", ".join(f"{n} x {what}" for what, n in counts.items()))
    console.print(table)
    for what, n in Counter(findings.failures).most_common(40):
        console.print(f"FAILED, {n} times: {what}", markup=False)
    if findings.failures:
        console.print(f"python -m tests.fuzz --again {path}", markup=False)
    return not findings.failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--again", type=Path)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    path = Path(tempfile.gettempdir()) / f"fuzz-{arguments.seed}.jsonl"
    pairs = _pairs(arguments.seed) if arguments.again is None else iter([*_saved(arguments.again)])
    findings = Findings(path)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tiny_en(folder / HEARS)
        presets = folder / "models.ini"
        presets.write_text(PRESETS)
        with Server(folder, {"presets": str(presets), "models_max": 3}) as server:
            fuzz(server, pairs, findings, arguments.minutes)
    return 0 if report(findings, path) else 1


if __name__ == "__main__":
    sys.exit(main())
