"""The flags as parameters of a click command, and the settings that were said by them, by the
environment and by the file: a flag counts more than a variable, and that more than the file.
"""

import os
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import click
import yaml
from click.core import ParameterSource

from deployments.router.presets.keys import find_key
from serve_app.command.flags.flag import MODEL, Flag, Said, Setting
from serve_app.command.flags.help_text import write_flags
from serve_app.command.flags.table import flags

LAYERS = (ParameterSource.DEFAULT_MAP, ParameterSource.ENVIRONMENT, ParameterSource.COMMANDLINE)
ALWAYS = "true"  # what a switch says
TYPED = "serve_app.command.flags.typed"
EVERYTHING = "serve_app.command.flags.everything"  # whether help is to be of all flags


def settings_file() -> Path:
    """The file of a person's own settings, which may not exist."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "manta" / "manta.yaml"


class SettingsCommand(click.Command):
    """A command that takes all flags."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Reads the file of settings as the lowest layer."""
        extra.setdefault("default_map", _of_file(settings_file()))
        typed = [arg.partition("=")[0] for arg in args]
        ctx = super().make_context(info_name, args, parent, **extra)
        ctx.meta[TYPED] = typed
        return ctx

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if why := _why_not(error.option_name):
                raise click.UsageError(f"{error.option_name}: {why}", ctx) from error
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = {flag.name for flag in flags()}
        own = [option for option in self.get_params(ctx) if option.name not in names]
        write_flags(formatter, own, ctx.meta.get(EVERYTHING, False))


def options() -> list[click.Parameter]:
    return [_option(flag) for flag in flags()]


def _option(flag: Flag) -> click.Option:
    names = list(flag.names)
    if flag.is_negatable:
        names = [f"{name}/--no-{name.removeprefix('--')}" for name in names]
    common: dict[str, Any] = {"envvar": list(flag.variables) or None}
    if flag.is_refused:  # whether or not a value follows
        return click.Option([*names, flag.name], is_flag=False, flag_value=ALWAYS, **common)
    if flag.is_negatable:
        return click.Option([*names, flag.name], default=None, **common)
    if not flag.metavar:
        return click.Option([*names, flag.name], is_flag=True, flag_value=ALWAYS, **common)
    return click.Option([*names, flag.name], metavar=flag.metavar, multiple=flag.is_list, **common)


def said(ctx: click.Context) -> Said:
    """Returns what all layers say together. Raises click.UsageError for what can't be read."""
    found: dict[Setting, object] = {}
    for layer in LAYERS:
        above = _said_in(ctx, layer)
        options = {_option_of(setting) for setting in above}
        found = {key: value for key, value in found.items() if _option_of(key) not in options}
        found |= above
    return found


def _said_in(ctx: click.Context, layer: ParameterSource) -> dict[Setting, object]:
    found: dict[Setting, object] = {}
    for flag in flags():
        value = ctx.params.get(flag.name)
        if value in (None, ()) or ctx.get_parameter_source(flag.name) is not layer:
            continue
        for text in value if isinstance(value, tuple) else [value]:
            for setting, given in _read(ctx, flag, str(text), layer).items():
                found[setting] = _combined(found.get(setting), given)
    return found


def _read(ctx: click.Context, flag: Flag, text: str, layer: ParameterSource) -> Said:
    is_switch = not flag.metavar and not flag.is_refused
    try:
        return flag.read(text.lower() if is_switch else text)
    except ValueError as error:
        raise click.UsageError(f"{_where(ctx, flag, layer)}: {error}", ctx) from error


def _combined(earlier: object, given: object) -> object:
    """Joins lists. What is said twice otherwise is what was said last."""
    if isinstance(earlier, tuple) and isinstance(given, tuple):
        return (*earlier, *given)
    if isinstance(earlier, list) and isinstance(given, list):
        return [*earlier, *given]
    return given


def _option_of(setting: Setting) -> object:
    """Names the option of a model that several keys say."""
    place, name = setting
    return find_key(name)[0].option if place == MODEL else setting


def _where(ctx: click.Context, flag: Flag, layer: ParameterSource) -> str:
    """Names the flag as it was typed, or where else it was said."""
    if layer is ParameterSource.DEFAULT_MAP:
        return f"{settings_file()}: {flag.name}"
    if layer is ParameterSource.ENVIRONMENT:
        return next(name for name in flag.variables if os.environ.get(name))
    typed = ctx.meta.get(TYPED, ())
    return next((name for name in flag.names if name in typed), flag.names[0])


def _why_not(name: str) -> str:
    """Says why llama-server's flag of this name is none here; "" for one that nobody has."""
    try:
        find_key(name.lstrip("-"))
    except ValueError as error:
        _, found, why = str(error).partition(" can't be set here: ")
        return why if found else ""
    return ""


def _of_file(path: Path) -> dict[str, object]:
    """Reads the file by the names of the flags. Raises click.UsageError."""
    try:
        read = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise click.UsageError(f"{path} can't be read: {error}") from error
    if read is None:
        return {}
    if not isinstance(read, dict):
        raise click.UsageError(f"{path}: must have a line NAME: VALUE for each setting")
    return dict(_named(path, str(name), value) for name, value in read.items())


def _named(path: Path, name: str, value: object) -> tuple[str, object]:
    known = {
        spelled.lstrip("-").replace("-", "_"): flag for flag in flags() for spelled in flag.names
    }
    flag = known.get(name.replace("-", "_"))
    if flag is None:
        near = get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise click.UsageError(f"{path}: unknown setting {name}{hint}")
    if flag.is_list:
        return flag.name, [str(item) for item in (value if isinstance(value, list) else [value])]
    return flag.name, str(value).lower() if isinstance(value, bool) else str(value)
