"""`manta ls`, `ps`, `pull`, `show`, `stop` and `rm`: the models of a running server."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from serve_app.command.client.connection import Connection
from serve_app.command.client.loading import bar, models, stage_of
from serve_app.command.client.server_options import connect, connecting
from serve_app.command.errors import CommandError, Exit

HELD = ("ready", "sleeping", "loading", "unloading")
OFF = "{}: the server downloads nothing; `manta serve` does, or one with --downloads-dir"


@click.command("ls")
@connecting
def ls(url: str | None, api_key: str | None) -> None:
    """Lists the models of the server."""
    with connect(url, api_key) as connection:
        rows = [
            (entry["id"], _weights(entry), _size(entry), _context(entry), _state(entry))
            for entry in models(connection)
        ]
    _print(("NAME", "WEIGHTS", "PARAMETERS", "CONTEXT", "STATE"), rows)


@click.command("ps")
@connecting
def ps(url: str | None, api_key: str | None) -> None:
    """Lists the models that are loaded, and what they do."""
    with connect(url, api_key) as connection:
        fleet = connection.get("/fleet")["models"]
    held = [entry for entry in fleet if entry["status"]["state"] in HELD]
    rows = [
        (
            entry["id"],
            _state(entry),
            f"{entry['status']['replicas']}/{entry['status']['replicas_target']}",
            str(entry["running"]),
            str(entry["waiting"]),
            f"{100 * entry['pages_used'] / max(1, entry['pages_total']):.0f} %",
            f"{entry['tokens_per_second'] or 0:.1f}",
        )
        for entry in held
    ]
    _print(("NAME", "STATE", "REPLICAS", "RUNNING", "WAITING", "CACHE", "TOKENS/S"), rows)


@click.command("pull")
@click.argument("model")
@click.option("--revision", metavar="NAME", help="A branch, a tag or a commit")
@connecting
def pull(model: str, revision: str | None, url: str | None, api_key: str | None) -> None:
    """Has the server download MODEL of the Hugging Face hub: OWNER/NAME, or OWNER/NAME:Q4_K_M for a
    GGUF file.
    """
    with connect(url, api_key) as connection:
        download(connection, model, revision)
    click.echo(f"{model} is there: `manta run {model}`")


@click.command("show")
@click.argument("model")
@click.option("--template", is_flag=True, help="Its chat template, and nothing else")
@connecting
def show(model: str, template: bool, url: str | None, api_key: str | None) -> None:
    """Shows what MODEL is and can do. One that is not loaded is known by its files."""
    with connect(url, api_key) as connection:
        if template:
            click.echo(connection.get("/props", model=model)["chat_template"])
            return
        entry = _find(connection, model)
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in _described(entry):
        table.add_row(name, value)
    Console(highlight=False).print(table)


@click.command("stop")
@click.argument("model")
@connecting
def stop(model: str, url: str | None, api_key: str | None) -> None:
    """Unloads MODEL: its memory is free then, and the next request loads it again. Ctrl-C where
    `manta serve` runs stops the server.
    """
    with connect(url, api_key) as connection:
        connection.post("/models/unload", {"model": model})


@click.command("rm")
@click.argument("names", metavar="MODEL...", nargs=-1, required=True)
@connecting
def rm(names: tuple[str, ...], url: str | None, api_key: str | None) -> None:
    """Deletes models that the server has downloaded, or ends their downloads."""
    with connect(url, api_key) as connection:
        for name in names:
            connection.delete("/models", model=name)
            click.echo(f"deleted {name}")


def download(connection: Connection, model: str, revision: str | None = None) -> None:
    """Returns when the server has the model. Raises CommandError; Ctrl-C ends the download."""
    console = Console(stderr=True, highlight=False)
    with connection.events("/models/sse") as events:  # before it begins: else its end may be missed
        connection.post("/models", {"model": model} | ({"revision": revision} if revision else {}))
        try:
            with bar(console) as progress:
                task = progress.add_task(f"downloading {model}", total=1.0)
                for event in _of(model, events):
                    if event["event"] == "download_finished":
                        return
                    if event["event"] == "download_failed":
                        raise CommandError(event["data"]["message"])
                    _, share = stage_of({"state": "", **event["data"]})
                    progress.update(task, completed=share)
        except KeyboardInterrupt:
            connection.delete("/models", model=model)
            raise
    raise CommandError(f"{connection.url} has ended before {model} was there")


def _of(model: str, events: Iterable[Any]) -> Iterable[Any]:
    return (event for event in events if event.get("model") == model)


def _find(connection: Connection, model: str) -> Mapping[str, Any]:
    for entry in models(connection):
        if model in (entry["id"], *entry["aliases"]):
            return entry
    raise CommandError(f"{connection.url} has no model {model}", Exit.NO_MODEL)


def _described(entry: Mapping[str, Any]) -> list[tuple[str, str]]:
    inputs = (entry.get("architecture") or {}).get("input_modalities") or []
    weights, meta = entry.get("weights") or {}, entry.get("meta") or {}
    found = [
        ("name", entry["id"]),
        ("aliases", ", ".join(name for name in entry["aliases"] if name != entry["id"])),
        ("state", _state(entry)),
        ("message", entry["status"].get("message", "")),
        ("family", weights.get("family", "")),
        ("weights", f"{_weights(entry)}, {weights.get('bits', '?')} bits"),
        ("parameters", _size(entry)),
        ("context", _context(entry)),
        ("embedding", str(meta.get("n_embd", ""))),
        ("tasks", ", ".join(entry.get("tasks") or [])),
        ("reads", ", ".join(inputs)),
        ("source", entry.get("source", "")),
    ]
    return [(name, value) for name, value in found if value]


def _weights(entry: Mapping[str, Any]) -> str:
    weights = entry.get("weights") or {}
    return " ".join(filter(None, (weights.get("format", ""), weights.get("type", ""))))


def _size(entry: Mapping[str, Any]) -> str:
    size = (entry.get("weights") or {}).get("n_params", 0)
    if not size:
        return ""
    return f"{size / 1e9:.1f}B" if size >= 1e9 else f"{size / 1e6:.1f}M"


def _context(entry: Mapping[str, Any]) -> str:
    length = entry.get("max_model_len")
    return f"{length:,}" if length else ""


def _state(entry: Mapping[str, Any]) -> str:
    status = entry["status"]
    if not status.get("progress"):
        return str(status["state"])
    stage, share = stage_of(status)
    return f"{status['state']}: {stage} {100 * share:.0f} %"


def _print(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table. In a pipe no line is cut or broken."""
    console = Console(highlight=False)
    width = None if console.is_terminal else 10_000
    table = Table(box=SIMPLE_HEAD if console.is_terminal else None, pad_edge=False)
    for name in head:
        table.add_column(name, no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table, width=width)
