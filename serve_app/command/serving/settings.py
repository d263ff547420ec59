"""The settings of a server: what was said, and what the command adds where nothing was."""

import ipaddress
import os
import re
from collections.abc import Mapping
from pathlib import Path

import click
from click.core import ParameterSource

from deployments.engine.loading.gguf.header import MAGIC
from deployments.engine.loading.gguf.names import is_gguf
from serve_app.command.config_check import SettingsError, check_settings
from serve_app.command.errors import CommandError, Exit
from serve_app.command.flags.flag import COMMAND, HTTP, MODEL, ROUTER, Said
from serve_app.command.flags.parameters import said
from serve_app.command.serving.graph import Config, graph

MODELS = ("model", "hf-repo", "hf-file")  # keys that say which model
DEVICES = Path("/dev")
DEVICE = re.compile(r"nvidia\d+")
LOOPBACK = "127.0.0.1"


def settings(ctx: click.Context, target: str | None) -> Said:
    """`target`: the model, where it was said without a flag. Raises click.UsageError."""
    found = dict(said(ctx))
    if target is not None:
        _check_only(ctx, found, target)
        for key in MODELS:
            found.pop((MODEL, key), None)
        found[MODEL, "model"] = target
    host = str(found.setdefault((HTTP, "host"), LOOPBACK))
    if _is_loopback(host):
        found.setdefault((ROUTER, "downloads_dir"), str(downloads()))
    is_here = (COMMAND, "address") not in found
    if is_here and _names_a_model(found) and not _says_gpus(found) and _has_gpu():
        found[MODEL, "num-gpus"] = 1.0
    return found


def config_of(settings: Said) -> Config:
    """Raises CommandError for a model that can't be served, or settings that don't fit together."""
    status = Exit.NO_MODEL if _names_a_model(settings) else Exit.FAILED
    try:
        config = graph(settings, webui=bool(settings.get((COMMAND, "webui"), True)))
    except ValueError as error:
        raise CommandError(str(error), status) from error
    _check_gguf(config)
    # Here: Ray takes a part of a second, which is no matter from now on.
    from ray.serve.schema import ServeDeploySchema

    try:
        check_settings(ServeDeploySchema.model_validate(config).applications)
    except SettingsError as error:
        raise CommandError(str(error)) from error
    return config


def downloads() -> Path:
    """The folder of what `manta pull` downloads."""
    home = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(home).expanduser() / "manta" / "models"


def _check_only(ctx: click.Context, found: Said, target: str) -> None:
    for key in MODELS:
        named = found.get((MODEL, key), target)
        source = ctx.get_parameter_source(key.replace("-", "_"))
        if source is ParameterSource.COMMANDLINE and named != target:
            raise click.UsageError(f"{target} and --{key} {named}: one of the two is served", ctx)


def _names_a_model(found: Said) -> bool:
    return any((MODEL, key) in found for key in MODELS)


def _says_gpus(found: Said) -> bool:
    return (MODEL, "num-gpus") in found or (MODEL, "n-gpu-layers") in found


def _has_gpu() -> bool:
    """Whether the machine has a GPU of NVIDIA's that is not hidden."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1", "NoDevFiles")
    return not hidden and any(DEVICE.fullmatch(path.name) for path in DEVICES.iterdir())


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _check_gguf(config: Mapping[str, object]) -> None:
    """Raises CommandError for a file that has only the name of a GGUF file."""
    applications = config["applications"]
    assert isinstance(applications, list)
    model = next(a["args"] for a in applications if a["name"] == "router").get("model", "")
    if not (is_gguf(model) and Path(model).is_file()):
        return
    try:
        with open(model, "rb") as file:
            begins = file.read(len(MAGIC))
    except OSError as error:
        raise CommandError(f"{model} can't be read: {error.strerror}", Exit.NO_MODEL) from error
    if begins != MAGIC:
        raise CommandError(f"{model} is no GGUF file: it does not begin with GGUF", Exit.NO_MODEL)
