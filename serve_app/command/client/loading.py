"""Waits for models to be loaded, and shows how far they are."""

import threading
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from serve_app.command.client.connection import Connection
from serve_app.command.errors import CommandError, Exit

LOOK_S = 0.3
MAX_FAILURES = 200  # of looks, one after the other: a minute
UNDER_WAY = ("loading", "downloading")


def bar(console: Console) -> Progress:
    """Returns a line for what is under way, which goes when it ends."""
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def models(connection: Connection) -> list[dict[str, Any]]:
    """Returns the models of a server, each as `GET /models` describes it."""
    found = connection.get("/models")["data"]
    assert isinstance(found, list)
    return found


def follow(connection: Connection, told_to_stop: threading.Event, console: Console) -> None:
    """Returns when no model is being loaded. Raises CommandError if one can't be loaded."""
    shown = Loads(console)
    with shown.progress:
        for listed in _looks(connection, told_to_stop):
            for entry in listed:
                _check(entry)
            waited = [entry for entry in listed if entry["status"]["state"] in UNDER_WAY]
            if not waited:
                return
            for entry in waited:
                shown.show(entry)


class Loads:
    """The loads that are under way: bars for people, and a line for each stage in a file."""

    def __init__(self, console: Console) -> None:
        self.progress = bar(console)
        self._console = console
        self._tasks: dict[str, TaskID] = {}
        self._stages: dict[str, str] = {}

    def show(self, entry: Mapping[str, Any]) -> None:
        name, (stage, share) = entry["id"], stage_of(entry["status"])
        if name not in self._tasks:
            self._tasks[name] = self.progress.add_task(name, total=1.0)
        words = f"{name}: {stage}"
        self.progress.update(self._tasks[name], description=words, completed=share)
        if not self._console.is_terminal and self._stages.get(name) != stage:
            self._console.print(words)
        self._stages[name] = stage


def _looks(connection: Connection, told_to_stop: threading.Event) -> Iterator[list[dict[str, Any]]]:
    """Yields the models again and again. Raises CommandError where the server answers no more: a
    busy one may be late.
    """
    failures = 0
    while not told_to_stop.is_set():
        try:
            yield models(connection)
            failures = 0
        except CommandError as error:
            failures += 1
            if error.status is Exit.WRONG_KEY or failures > MAX_FAILURES:
                raise
        told_to_stop.wait(LOOK_S)


def stage_of(status: Mapping[str, Any]) -> tuple[str, float]:
    """Returns what is being done, and its share that is done."""
    progress = status.get("progress") or {}
    return str(progress.get("current", status["state"])), float(progress.get("value", 0.0))


def _check(entry: Mapping[str, Any]) -> None:
    """Raises CommandError for the one model of a server that can't be loaded."""
    status = entry["status"]
    if status["state"] == "failed" and entry.get("source") == "argument":
        raise CommandError(f"{entry['id']}: {status.get('message', 'failed')}", Exit.NO_MODEL)
