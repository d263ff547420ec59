"""The command `manta`. A subcommand is imported when it is called: help comes at once."""

from importlib import import_module

import click

# What each imports, and in which order `manta --help` lists them.
COMMANDS = {
    "serve": ("serve_app.command.serving.commands:serve", "Serve a model, or several"),
    "config": (
        "serve_app.command.serving.commands:config",
        "Print the YAML that `serve` would run",
    ),
    "run": (
        "serve_app.command.client.commands:run",
        "Chat with a model; starts a server if none runs",
    ),
    "chat": ("serve_app.command.client.commands:chat", "Chat with a model of a running server"),
    "complete": ("serve_app.command.client.commands:complete", "Complete a text"),
    "ls": ("serve_app.command.client.models:ls", "List the models of the server"),
    "ps": ("serve_app.command.client.models:ps", "List those that are loaded"),
    "pull": ("serve_app.command.client.models:pull", "Download a model"),
    "show": ("serve_app.command.client.models:show", "Show what a model is"),
    "stop": ("serve_app.command.client.models:stop", "Unload a model"),
    "rm": ("serve_app.command.client.models:rm", "Delete a downloaded model"),
    "bench": ("serve_app.command.bench.commands:bench", "Measure a server"),
    "run-batch": ("serve_app.command.client.batch:run_batch", "Answer a file of requests"),
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found: click.Command = getattr(import_module(module), name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in COMMANDS.items()])


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="`manta serve` is all it takes to begin; `manta COMMAND --help` says more.",
)
@click.version_option(package_name="manta", message="%(version)s")
def manta() -> None:
    """Serves language models, and talks to them."""


def main() -> None:
    manta(prog_name="manta")


if __name__ == "__main__":
    main()
