"""Waits for models to be loaded, and shows how far they are."""

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from serve_app.command.client.connection import Connection
from serve_app.command.errors import CommandError, Exit

LOOK_S = 0.3
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
    stages: dict[str, str] = {}
    with ExitStack() as shown:
        progress = shown.enter_context(bar(console))
        tasks: dict[str, Any] = {}
        while not told_to_stop.is_set():
            listed = models(connection)
            waited = [entry for entry in listed if entry["status"]["state"] in UNDER_WAY]
            for entry in waited:
                name, (stage, share) = entry["id"], stage_of(entry["status"])
                if name not in tasks:
                    tasks[name] = progress.add_task(name, total=1.0)
                progress.update(tasks[name], description=f"{name}: {stage}", completed=share)
                if not console.is_terminal and stages.get(name) != stage:
                    console.print(f"{name}: {stage}")
                stages[name] = stage
            for entry in listed:
                _check(entry)
            if not waited:
                return
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
