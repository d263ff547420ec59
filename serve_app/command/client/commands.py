"""`manta chat`, `manta complete` and `manta run`."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from serve_app.command.client.chat import (
    ChatSession,
    chosen_model,
    effort,
    known_models,
    response_format,
)
from serve_app.command.client.chat import (
    complete as completion,
)
from serve_app.command.client.connection import Connection
from serve_app.command.client.connection import api_key as known_key
from serve_app.command.client.server_options import connect, connecting
from serve_app.command.client.terminal import converse, say
from serve_app.command.errors import CommandError, Exit

NO_KEEPALIVE = "a server says it for its models: `manta serve --sleep-idle-seconds`"


def read_by(read: Callable[[str], object]) -> Callable[..., object]:
    """Returns a callback that reads an option's text, and says what is wrong by its name."""

    def callback(ctx: click.Context, parameter: click.Parameter, text: str | None) -> object:
        try:
            return None if text is None else read(text)
        except ValueError as error:
            raise click.BadParameter(str(error), ctx, parameter) from error

    return callback


def _refuse(why: str) -> Callable[[str], object]:
    def read(_: str) -> object:
        raise ValueError(why)

    return read


def generating(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options of requests that generate; each is a field of the request."""
    for decorate in (
        click.option("--seed", type=int, help="Repeat the same answer"),
        click.option("--top-p", type=float, help="Share of probability to draw from"),
        click.option("--temperature", "--temp", type=float, help="0 is greedy"),
        click.option("--max-tokens", "-n", type=int, help="Most tokens of an answer"),
    ):
        function = decorate(function)
    return function


def chatting(function: Callable[..., None]) -> Callable[..., None]:
    for decorate in (
        click.option("--verbose", is_flag=True, help="Say how fast each answer came"),
        click.option(
            "--format",
            "response_format",
            callback=read_by(response_format),
            help="json, a JSON schema, or the file of one",
        ),
        click.option(
            "--think",
            "reasoning_effort",
            callback=read_by(effort),
            help="true, false, low, medium or high",
        ),
        click.option("--system-prompt", "--system", metavar="TEXT", help="Said before all else"),
    ):
        function = decorate(function)
    return generating(function)


@click.command()
@click.argument("model", required=False)
@click.option("--model-name", "--model", "-m", "named", metavar="MODEL", help="As MODEL")
@click.option("--quick", "-q", "text", metavar="TEXT", help="Ask this alone")
@chatting
@connecting
def chat(
    model: str | None,
    named: str | None,
    text: str | None,
    url: str | None,
    api_key: str | None,
    **options: Any,
) -> None:
    """Chats with a model of a running server, the first one unless MODEL names another. What comes
    through a pipe is asked alone.
    """
    with connect(url, api_key) as connection:
        talk(connection, chosen_model(connection, model or named), text, **options)


@click.command("complete")
@click.argument("model", required=False)
@click.option("--model-name", "--model", "-m", "named", metavar="MODEL", help="As MODEL")
@click.option("--quick", "-q", "text", metavar="TEXT", help="The text to go on from")
@generating
@connecting
def complete(
    model: str | None,
    named: str | None,
    text: str | None,
    url: str | None,
    api_key: str | None,
    **fields: Any,
) -> None:
    """Goes on from a text: that of -q, or what comes through a pipe, or each line that is typed."""
    given = piped(text)
    with connect(url, api_key) as connection:
        chosen = chosen_model(connection, model or named)
        for prompt in [given] if given is not None else _typed():
            for piece in completion(connection, chosen, prompt, _said(fields)):
                click.echo(piece, nl=False)
                sys.stdout.flush()
            click.echo()


@click.command("run")
@click.argument("model")
@click.argument("prompt", nargs=-1)
@chatting
@click.option(
    "--keepalive",
    "--keep-alive",
    callback=read_by(_refuse(NO_KEEPALIVE)),
    hidden=True,
    expose_value=False,
)
@connecting
def run(
    model: str, prompt: tuple[str, ...], url: str | None, api_key: str | None, **options: Any
) -> None:
    """Chats with MODEL: of the running server, or of one that is started for it and ends with the
    chat. With a PROMPT, or what comes through a pipe, it answers that alone.
    """
    with _serving(model, url, api_key) as (connection, name):
        talk(connection, name, " ".join(prompt) or None, **options)


@contextmanager
def _serving(model: str, url: str | None, key: str | None) -> Iterator[tuple[Connection, str]]:
    """Yields a server that has the model, and its name there. Raises CommandError."""
    with connect(url, key) as connection:
        if connection.is_up():
            _have(connection, model)
            yield connection, model
            return
        if url is not None:
            chosen_model(connection, model)  # which says that nothing answers there
    from serve_app.command.client.own_server import own_server

    with own_server(model, known_key(key)) as own:
        yield own, chosen_model(own, None)


def _have(connection: Connection, model: str) -> None:
    """Has the server download a model of the hub that it lacks. Raises CommandError."""
    if model in known_models(connection):
        return
    if Path(model).exists() or "/" not in model:
        message = f"{connection.url} has no model {model}: `manta ls` lists those that it has"
        raise CommandError(message, Exit.NO_MODEL)
    from serve_app.command.client.models import download

    download(connection, model)


def talk(
    connection: Connection,
    model: str,
    text: str | None,
    *,
    system_prompt: str | None,
    verbose: bool,
    **fields: Any,
) -> None:
    """Answers one text, or begins a conversation where there is none."""
    found = ChatSession(connection, model, _said(fields))
    found.set_system(system_prompt or "")
    given = piped(text)
    if given is None:
        converse(found, verbose)
    else:
        say(found, given, verbose)


def piped(text: str | None) -> str | None:
    """Returns the text with what comes through a pipe below it; None: a person is to type."""
    if sys.stdin.isatty():
        return text
    parts = [part for part in (text, sys.stdin.read().strip()) if part]
    if not parts:
        raise CommandError("nothing was asked: neither in words nor through the pipe")
    return "\n\n".join(parts)


def _typed() -> Iterator[str]:
    while True:
        try:
            yield input("> ")
        except (EOFError, KeyboardInterrupt):
            click.echo()
            return


def _said(fields: dict[str, Any]) -> dict[str, object]:
    return {name: value for name, value in fields.items() if value is not None}
