"""A server for as long as a chat lasts."""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from serve_app.command.client.connection import Connection
from serve_app.command.client.loading import follow
from serve_app.command.errors import CommandError, Exit
from serve_app.command.ports import choose_port

HOST = "127.0.0.1"
LOOK_S = 0.2
END_S = 90.0
N_LINES = 5  # of its output, where it fails


@contextmanager
def own_server(model: str, key: str | None) -> Iterator[Connection]:
    """Serves a model within, and ends with this process, however that ends. Raises CommandError."""
    console = Console(stderr=True, highlight=False)
    port = choose_port(HOST, None)
    with tempfile.TemporaryDirectory(prefix="manta-") as folder:
        log = Path(folder) / "serve.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                # No Ctrl-C of the terminal reaches it: that ends an answer.
                [*_command(model), "--port", str(port), "--until-stdin-ends"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            with Connection(f"http://{HOST}:{port}", key) as connection:
                with console.status(f"Starting a server for {model}"):
                    _wait(process, connection, log)
                follow(connection, threading.Event(), console)
                yield connection
        finally:
            assert process.stdin is not None
            process.stdin.close()
            with console.status("Ending the server"):
                _end(process)


def _command(model: str) -> list[str]:
    return [sys.executable, "-m", "serve_app.command.manta", "serve", model]


def _wait(process: "subprocess.Popen[bytes]", connection: Connection, log: Path) -> None:
    """Returns when the server lists its models. Raises CommandError where it has ended."""
    pause = threading.Event()
    while process.poll() is None:
        if connection.is_up() and connection.lists_models():
            return
        pause.wait(LOOK_S)
    said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    known = process.returncode in list(Exit)
    status = Exit(process.returncode) if known else Exit.FAILED
    last = said[-1:] if known else said[-N_LINES:]
    message = "\n".join(last).removeprefix("manta serve: ")
    raise CommandError(message or f"the server ended with {process.returncode}", status)


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(END_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        process.terminate()  # a second signal ends all at once
        process.wait()
