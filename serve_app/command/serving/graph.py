"""The config that Serve runs for what flags say: `serve.yaml` with their settings in it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from deployments.router.presets.keys import build_options
from deployments.router.presets.sources import with_absolute_paths
from serve_app.command.flags.flag import HTTP, INGRESS, MODEL, ROUTER, Said
from serve_app.ingress_arguments import (
    HttpArguments,
    IngressArguments,
    LlamaArguments,
    OpenAIArguments,
)
from serve_app.web_arguments import WebArguments

SERVE_YAML = Path(__file__).parents[2] / "serve.yaml"
ARGUMENTS: Mapping[str, type[HttpArguments]] = {
    "openai": OpenAIArguments,
    "anthropic": IngressArguments,
    "llama": LlamaArguments,
    "web": WebArguments,
}
PATHS = ("presets", "_dir", "_folder", "_file")  # ends of names of settings that are paths
SOURCES = ("model", "presets", "models_dir")

Config = dict[str, Any]


def graph(said: Said, *, webui: bool = True) -> Config:
    """Returns a config that `serve run` takes from any folder. Raises ValueError."""
    config: Config = yaml.safe_load(SERVE_YAML.read_text())
    config["http_options"] |= _of(said, HTTP)
    config["applications"] = [
        application
        for application in config["applications"]
        if webui or application["name"] != "web"
    ]
    for application in config["applications"]:
        name = application["name"]
        if name == "router":
            given = router_arguments(said)
            is_demo = not any(source in given for source in SOURCES)
            application["args"] = (application["args"] if is_demo else {}) | given
        elif args := _with_fields(said, ARGUMENTS[name].model_fields):
            application["args"] = args
    return config


def router_arguments(said: Said) -> dict[str, object]:
    """Returns the arguments of the router, its paths absolute. Raises ValueError."""
    options = with_absolute_paths(build_options(_of(said, MODEL)), Path.cwd())
    return {**options.model_dump(exclude_unset=True, mode="json"), **_of(said, ROUTER)}


def _with_fields(said: Said, fields: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in _of(said, INGRESS).items() if name in fields}


def _of(said: Said, place: str) -> dict[str, object]:
    """Returns the settings of one place. Those of models have paths of their own kind."""
    found = {name: value for (belongs, name), value in said.items() if belongs == place}
    for name, value in found.items():
        if place != MODEL and value is not None and name.endswith(PATHS):
            found[name] = str(Path(str(value)).expanduser().resolve())
    return found


def dumped(config: Config) -> str:
    """Returns YAML that reads as `serve.yaml` does."""
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True, width=100)
