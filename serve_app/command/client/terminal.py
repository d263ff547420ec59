"""A chat in the terminal: reads lines and slash commands, and writes answers as they come."""

import sys
from collections.abc import Callable, Mapping
from contextlib import closing, nullcontext, suppress
from itertools import chain

import click
from rich.console import Console

from serve_app.command.client.chat import ChatSession, effort, response_format
from serve_app.command.errors import CommandError

PROMPT, MORE = ">>> ", "... "
QUOTES = '"""'
HELP = """\
  /set NAME VALUE   system, think, format, temperature, top_p, max_tokens or seed
  /show             the model and what is set
  /clear            forget the conversation
  /bye              leave; Ctrl-D does, too
  \"\"\"               begins and ends several lines
  Ctrl-C            ends an answer"""
# Fields of a request by the names of `/set`, and how each reads its value.
SETTINGS: Mapping[str, tuple[str, Callable[[str], object]]] = {
    "think": ("reasoning_effort", effort),
    "format": ("response_format", response_format),
    "temperature": ("temperature", float),
    "top_p": ("top_p", float),
    "max_tokens": ("max_tokens", int),
    "seed": ("seed", int),
}


def say(chat: ChatSession, text: str, verbose: bool) -> None:
    """Writes one answer. Raises CommandError. Thoughts are for people: a pipe gets the text."""
    is_for_people = sys.stdout.isatty()
    waiting = Console(stderr=True).status("") if is_for_people else nullcontext()
    with closing(chat.ask(text)) as pieces:
        with waiting:
            first = next(pieces, None)
        was_thought = False
        for piece in chain([first] if first else [], pieces):
            if was_thought and not piece.is_thought:
                click.echo("\n")
            was_thought = piece.is_thought and is_for_people
            if not piece.is_thought:
                click.echo(piece.text, nl=False)
            elif is_for_people:
                click.echo(click.style(piece.text, dim=True), nl=False)
            sys.stdout.flush()
    click.echo()
    if verbose:
        click.echo(str(chat.measured), err=True)


def converse(chat: ChatSession, verbose: bool) -> None:
    """Returns when the person leaves."""
    with suppress(ImportError):
        import readline  # noqa: F401 (`input` has a history and arrow keys then)
    click.echo(f"{chat.model}. /? is help, /bye leaves.")
    while (text := _read()) is not None:
        if text.startswith("/"):
            if not command(chat, text):
                return
        elif text.strip():
            _answer(chat, text, verbose)


def _answer(chat: ChatSession, text: str, verbose: bool) -> None:
    try:
        say(chat, text, verbose)
    except KeyboardInterrupt:
        click.echo("\n(interrupted)")
    except CommandError as error:
        click.echo(error.message, err=True)


def _read() -> str | None:
    """Returns what was typed; None: nothing more will be."""
    try:
        text = input(PROMPT)
        if not text.startswith(QUOTES):
            return text
        text = text.removeprefix(QUOTES)
        while QUOTES not in text:
            text += "\n" + input(MORE)
        return text.replace(QUOTES, "")
    except KeyboardInterrupt:
        click.echo("  (/bye leaves)")
        return ""
    except EOFError:
        click.echo()
        return None


def command(chat: ChatSession, text: str) -> bool:
    """Obeys a slash command. Returns whether the chat goes on."""
    name, _, rest = text.partition(" ")
    match name:
        case "/bye" | "/exit" | "/quit":
            return False
        case "/clear":
            chat.clear()
        case "/show":
            click.echo(f"{chat.model} at {chat.connection.url}, {len(chat.messages)} messages")
            for field, value in chat.fields.items():
                click.echo(f"  {field}: {value}")
        case "/set":
            click.echo(_set(chat, *rest.partition(" ")[::2]))
        case "/?" | "/help":
            click.echo(HELP)
        case _:
            click.echo(f"there is no {name}; /? lists what there is")
    return True


def _set(chat: ChatSession, name: str, value: str) -> str:
    value = value.strip().strip('"')
    if name == "system":
        chat.set_system(value)
        return "The system prompt is set." if value else "There is no system prompt."
    if name not in SETTINGS:
        return f"/set takes system, {', '.join(SETTINGS)}"
    field, read = SETTINGS[name]
    try:
        chat.fields[field] = read(value)
    except ValueError as error:
        return f"{name}: {error}"
    return f"{field}: {chat.fields[field]}"
