"""Runs a server until it is told to stop, and tells how its models come."""

import logging
import os
import signal
import sys
import threading
import time
import webbrowser
from typing import Any

from ray.serve.schema import ServeDeploySchema
from rich.console import Console

from serve_app.command.client.connection import Connection
from serve_app.command.client.loading import follow
from serve_app.command.errors import CommandError
from serve_app.command.run import StartError, StartTeller, run_until_stopped
from serve_app.command.serving.graph import ARGUMENTS, Config

NO_ENVIRONMENT = {"runtime_env": None, "runtime_env_json": None, "working_dir": None}
EVERYWHERE = ("0.0.0.0", "::", "")
ANY = "127.0.0.1"


class ServeTeller(StartTeller):
    """Tells of the model, where there is one to wait for, and then the addresses."""

    command = "manta serve"

    def __init__(self, config: Config, opens: bool, shows_logs: bool) -> None:
        self.shows_logs = shows_logs
        if not shows_logs:
            logging.getLogger("ray.serve").setLevel(logging.WARNING)
        self._http = config["http_options"]
        self._webui = any(part["name"] == "web" for part in config["applications"])
        self._key = first_key(config)
        self._opens = opens
        self._console = Console(highlight=False)
        self._status = self._console.status("Starting Ray")
        self._began = time.monotonic()
        if self._console.is_terminal and not shows_logs:
            self._status.start()

    def deploying(self) -> None:
        self._tell("Starting the applications")

    def running(self, told_to_stop: threading.Event) -> None:
        self._status.stop()
        try:
            with Connection(self.url, self._key) as connection:
                follow(connection, told_to_stop, self._console)
        except CommandError as error:
            raise StartError(error.message, error.status) from error
        if not told_to_stop.is_set():
            self._welcome()

    def failing(self) -> None:
        self._status.stop()

    def stopping(self) -> None:
        self._status.stop()
        self._console.print("Stopping. A second Ctrl-C ends all at once.")

    @property
    def url(self) -> str:
        host = self._http["host"]
        host = ANY if host in EVERYWHERE else host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._http['port']}"

    def _tell(self, what: str) -> None:
        if self._console.is_terminal and not self.shows_logs:
            self._status.update(what)
        else:
            self._console.print(what)

    def _welcome(self) -> None:
        self._console.print(f"Ready after {time.monotonic() - self._began:.0f} s.")
        if self._webui:
            self._console.print(f"  Chat       {self.url}/")
        self._console.print(f"  OpenAI     {self.url}/v1")
        self._console.print(f"  Anthropic  {self.url}")
        if self._http["host"] in EVERYWHERE and self._key is None:
            self._console.print("Whoever reaches this machine may use it: see --api-key.")
        self._console.print("Ctrl-C ends it.")
        if self._opens:
            webbrowser.open(f"{self.url}/ui/" if self._webui else f"{self.url}/docs")


def first_key(config: Config) -> str | None:
    """Returns a key that the server takes; None: it is open."""
    args = next(part for part in config["applications"] if part["name"] == "llama").get("args", {})
    keys = ARGUMENTS["llama"].model_validate(args).known_keys().keys
    return keys[0] if keys else None


def start(
    config: Config, address: str | None, *, opens: bool, shows_logs: bool, ends_with_stdin: bool
) -> None:
    """Returns when the server has ended. `address` is of a Ray that runs; None starts one."""
    if ends_with_stdin:
        threading.Thread(target=_stop_after_stdin, daemon=True).start()
    teller = ServeTeller(config, opens, shows_logs)
    schema: Any = ServeDeploySchema.model_validate(config)
    run_until_stopped(schema, address or "local", NO_ENVIRONMENT, teller)


def _stop_after_stdin() -> None:
    """Ends the server with whoever has started it, however that ends."""
    # Not by a file object, whose lock the interpreter needs at its end.
    while os.read(sys.stdin.fileno(), 1):
        pass
    signal.raise_signal(signal.SIGTERM)
