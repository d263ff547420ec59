"""Errors of the command `manta`, each with the status that it exits with."""

from enum import IntEnum
from typing import IO, Any

import click


class Exit(IntEnum):
    """2 is click's, for flags and arguments that are wrong."""

    FAILED = 1
    USAGE = 2
    NO_SERVER = 3
    NO_MODEL = 4
    WRONG_KEY = 5
    PORT_TAKEN = 6


class CommandError(click.ClickException):
    """Ends the command: its message begins with what was typed."""

    def __init__(self, message: str, status: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.status = status
        context = click.get_current_context(silent=True)
        self._command = "manta" if context is None else context.command_path

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        return self.status

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"{self._command}: {self.message}", file=file, err=file is None)
