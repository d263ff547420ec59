"""Servers of their own for one test: one that can't start, and one that runs beside another one."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.e2e.nodes import OPEN
from tests.e2e.server import THROUGHPUT_MODE, Server

# tests/serve_app/test_router_arguments.py has the refusal, tests/ingress its way over HTTP, and no
# two ports of tests/e2e/server.py are the same.
pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(600)]


class Broken(Server):
    """A server whose router can't be started, and which is ready when it says why.

    Ray's own command deploys it, as other ways to deploy do: ours does not start it.
    """

    def begin(self) -> "subprocess.Popen[bytes]":
        of_ray = "from ray.serve.scripts import cli; cli()"
        self._command = [sys.executable, "-c", of_ray, *self._command[3:]]
        return super().begin()

    def is_ready(self) -> bool:
        try:
            health = self.http.get("/health", timeout=20)
        except httpx.HTTPError:
            return False
        return health.status_code == 503 and "models_maximum" in health.text


def test_a_router_with_a_wrong_setting_is_told_of_over_http(tmp_path: Path) -> None:
    with Broken(tmp_path, {"models_maximum": 2}) as server:
        answer = server.http.post("/v1/completions", json={"prompt": "abc", "max_tokens": 4})
        assert answer.status_code == 503
        message = answer.json()["error"]["message"]
        assert message.startswith("The router could not be started: ")
        assert "models_max" in message


def test_two_servers_share_a_host_and_leave_nothing_of_themselves(
    checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nothing is set for it but the ports: both end as soon as a person's would."""

    def of(name: str) -> Server:
        router = {"model": str(checkpoint), "num_cpus": 0.5, "n_pages": 160, "name": name}
        return Server(tmp_path_factory.mktemp(name), router, THROUGHPUT_MODE)

    with of("one") as one:
        with of("other") as other:
            assert names(one) == ["one"]
            assert names(other) == ["other"]
        body = {"prompt": "abc", "max_tokens": 4}
        assert one.http.post("/v1/completions", json=body).status_code == 200


def test_a_server_that_joins_anothers_ray_says_that_it_takes_it_over(
    checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """RAY_ADDRESS names the Ray that a server would find by itself on its host without it."""

    def of(name: str, port: int | None = None, **environment: str) -> Server:
        router = {"model": str(checkpoint), "num_cpus": 0.5, "n_pages": 160, "name": name}
        return Server(tmp_path_factory.mktemp(name), router, {**OPEN, **environment}, port=port)

    with of("first") as first:
        joined = of("second", first.port, RAY_ADDRESS=first.address).begin()
        try:
            first.eventually(lambda: first.is_ready() and names(first) == ["second"])
        finally:
            joined.kill()
            joined.wait()
        logs = (first.session / "logs" / "serve").glob("replica_router_*.log")
        lines = [line for file in logs for line in file.read_text().splitlines()]
        [told] = [line for line in lines if "takes over" in line]
        assert told.endswith(
            "takes over the graph that ran in this Ray cluster, with model-first; "
            "RAY_ADDRESS=local starts one beside it"
        )


def names(server: Server) -> list[str]:
    models = server.http.get("/v1/models").json()["data"]
    return [model["id"] for model in models]
