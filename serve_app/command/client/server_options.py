"""The options that say which server a command talks to."""

from collections.abc import Callable

import click

from serve_app.command.client.connection import Connection, api_key, server_url


def connecting(function: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say which server."""
    url = click.option("--url", metavar="URL", help="The server  [MANTA_HOST, or 127.0.0.1:8000]")
    key = click.option("--api-key", metavar="KEY", help="Its key  [MANTA_API_KEY]")
    return url(key(function))


def connect(url: str | None, key: str | None) -> Connection:
    return Connection(server_url(url), api_key(key))
