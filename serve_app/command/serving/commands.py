"""`manta serve` and `manta config`: the same flags, one runs what the other prints."""

from collections.abc import Callable
from typing import Any

import click

from serve_app.command.flags.flag import COMMAND, HTTP
from serve_app.command.flags.parameters import EVERYTHING, SettingsCommand, options
from serve_app.command.ports import choose_port
from serve_app.command.serving.graph import dumped
from serve_app.command.serving.settings import config_of, settings


def _show_all(ctx: click.Context, _: click.Parameter, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        ctx.meta[EVERYTHING] = True
        click.echo(ctx.get_help())
        ctx.exit()


def _settings_command(
    name: str, *own: click.Parameter
) -> Callable[[Callable[..., None]], click.Command]:
    """Returns a decorator for a command with a model, all flags, and some of its own."""
    target = click.Argument(["target"], required=False, metavar="[MODEL]")
    help_all = click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_show_all,
        help="Show every flag, also those of other servers",
    )

    def made(function: Callable[..., None]) -> click.Command:
        return SettingsCommand(
            name,
            callback=click.pass_context(function),
            params=[target, *options(), *own, help_all],
            help=function.__doc__,
        )

    return made


@_settings_command(
    "serve",
    click.Option(["--open"], is_flag=True, help="Open the chat page in a browser"),
    click.Option(["-v", "--verbose"], is_flag=True, help="Show the logs of all processes"),
    click.Option(["--until-stdin-ends"], is_flag=True, hidden=True),
)
def serve(
    ctx: click.Context,
    /,
    target: str | None,
    open: bool,
    verbose: bool,
    until_stdin_ends: bool,
    **_: Any,
) -> None:
    """Serves MODEL: a directory, a GGUF file, or a model of the Hugging Face hub, such as
    Qwen/Qwen3-0.6B. Without one: the small model that comes with Manta.
    """
    asked = settings(ctx, target)
    config = config_of(asked)
    address = asked.get((COMMAND, "address"))
    if address is None:
        http = config["http_options"]
        port = asked.get((HTTP, "port"))
        http["port"] = choose_port(http["host"], port if isinstance(port, int) else None)
    from serve_app.command.serving.start import start

    start(
        config,
        None if address is None else str(address),
        opens=open,
        shows_logs=verbose,
        ends_with_stdin=until_stdin_ends,
    )


@_settings_command("config")
def config(ctx: click.Context, /, target: str | None, **_: Any) -> None:
    """Prints the YAML of what `manta serve` would run. `serve run FILE` runs it, and Ray Serve's
    other ways to deploy take it. Keys that were said are in it.
    """
    click.echo(dumped(config_of(settings(ctx, target))), nl=False)
