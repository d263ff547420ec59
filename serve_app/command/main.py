"""The command `serve`: Ray's own, but for `serve run` of a config that has applications of Manta.

Ray's would deploy wrong settings, share a port that is taken, and cut streams when it is told to
end.
"""

import sys
from pathlib import Path
from typing import Any

import yaml
from ray.serve.schema import ServeDeploySchema
from ray.serve.scripts import cli

from serve_app.command.config_check import PACKAGE


def main() -> None:
    run = cli.commands["run"]
    of_ray = run.callback

    def run_config(**options: Any) -> None:
        config = manta_config(options["config_or_import_path"])
        if config is None or options["reload"] or not options["blocking"]:
            of_ray(**options)
            return
        sys.path.insert(0, options["app_dir"])
        # Here: it is Ray's command for all else.
        from serve_app.command.run import StartTeller, run_until_stopped

        names = ("runtime_env", "runtime_env_json", "working_dir")
        environment = {name: options[name] for name in names}
        run_until_stopped(config, options["address"], environment, StartTeller())

    run.callback = run_config
    cli()


def manta_config(path: str) -> ServeDeploySchema | None:
    """Reads a config; None for what is none, or one without applications of Manta."""
    if not Path(path).is_file():
        return None
    read = yaml.safe_load(Path(path).read_text())
    listed = read.get("applications") if isinstance(read, dict) else None
    found = [entry.get("import_path") for entry in listed or () if isinstance(entry, dict)]
    if not any(str(import_path).startswith(PACKAGE) for import_path in found):
        return None
    return ServeDeploySchema.model_validate(read)


if __name__ == "__main__":
    main()
