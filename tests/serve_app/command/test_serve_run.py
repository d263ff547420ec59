"""`serve run` of a config: what is wrong is the end of its output, before anything is started."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
import yaml
from ray.serve.schema import ServeDeploySchema

from serve_app.command.main import manta_config
from serve_app.command.port_check import PortTaken, check_port
from serve_app.command.run import StartTeller, run_until_stopped

SERVE_YAML = Path(__file__).resolve().parents[3] / "serve_app" / "serve.yaml"
NO_ENVIRONMENT = {"runtime_env": None, "runtime_env_json": None, "working_dir": None}


def config(**arguments: dict[str, object]) -> ServeDeploySchema:
    """`serve.yaml` with arguments of some applications."""
    read: dict[str, Any] = yaml.safe_load(SERVE_YAML.read_text())
    for application in read["applications"]:
        application["args"] = arguments.get(application["name"], {})
    return ServeDeploySchema.model_validate(read)


@pytest.mark.parametrize(
    ("application", "arguments", "said"),
    [
        ("router", {"models_maximum": 2}, "router: unknown setting models_maximum"),
        ("router", {"presets": "/nowhere/models.ini"}, "router: .*/nowhere/models.ini"),
        ("router", {"presets": "PRESETS"}, "router: .*models.ini:3: unknown key temprature"),
        ("openai", {"api_key_file": "/nowhere/keys"}, "openai: api_key_file: /nowhere/keys can't"),
        ("anthropic", {"api_keys": ["a secret"]}, "anthropic: an API key of api_keys is empty"),
        ("llama", {"tools_folder": "/nowhere"}, "llama: there is no directory /nowhere"),
        ("web", {"store": "mysql://u:secret@db/x"}, "web: store: must be `none`"),
    ],
)
def test_a_wrong_setting_ends_the_start_and_is_said_last(
    application: str,
    arguments: dict[str, object],
    said: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if arguments.get("presets") == "PRESETS":
        (tmp_path / "models.ini").write_text("[tiny]\nmodel = /x\ntemprature = 1\n")
        arguments = {"presets": str(tmp_path / "models.ini")}
    wrong = config(**{application: arguments})
    with pytest.raises(SystemExit) as ended:
        run_until_stopped(wrong, "local", NO_ENVIRONMENT, StartTeller())
    assert ended.value.code == 1
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("serve run: ")
    assert re.search(said, last), last
    assert "secret" not in last


@contextmanager
def listener(shares: bool) -> Iterator[int]:
    with socket.socket() as taken:
        if shares:  # as Serve's proxies and HAProxy do
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_port_that_another_server_listens_on_is_refused(host: str, shares: bool) -> None:
    with listener(shares) as port, pytest.raises(PortTaken) as taken:
        check_port(host, port)
    assert str(taken.value).startswith(f"port {port} is taken: process ")


def test_a_port_of_connections_that_have_ended_is_free() -> None:
    """A server that is started again at once finds some of its last run's."""
    with listener(shares=True) as port:
        client = socket.create_connection(("127.0.0.1", port))
    accepted_port = port
    client.close()
    check_port("127.0.0.1", accepted_port)


def test_only_configs_with_applications_of_manta_are_its_own(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text("applications: [{name: a, import_path: 'other:app'}]")
    assert manta_config(str(SERVE_YAML)) is not None
    for path in (str(other), "module:app", str(tmp_path / "none.yaml")):
        assert manta_config(path) is None


def test_the_command_of_the_environment_is_ours() -> None:
    """Else it was installed before this one was: `pip install -e .` again."""
    found = entry_points(group="console_scripts", name="serve")
    assert "serve_app.command.main:main" in {script.value for script in found}
