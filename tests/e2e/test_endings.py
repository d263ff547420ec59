"""Serve's own processes die, or are told to end, while streams are open."""

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.nodes import OPEN, CutError, streams
from tests.e2e.server import STOP_S, THROUGHPUT_MODE, Server, processes_of_session

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(900)]
SETTINGS = {"name": "tiny", "dtype": "float32", "num_cpus": 0.9}


@pytest.fixture(scope="module", params=["default", "throughput"])
def server(
    request: pytest.FixtureRequest, checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    environment = THROUGHPUT_MODE if request.param == "throughput" else {}
    router = {"model": str(checkpoint), **SETTINGS}
    with Server(tmp_path_factory.mktemp(request.param), router, {**OPEN, **environment}) as running:
        yield running


def kill(server: Server, pattern: str) -> None:
    """All of the server's processes whose command matches, as a crash would."""
    commands = processes_of_session(server._process.pid).items()
    found = [pid for pid, command in commands if re.search(pattern, command)]
    assert found, pattern
    for pid in found:
        os.kill(pid, signal.SIGKILL)


def is_proxied_by_haproxy(server: Server) -> bool:
    commands = processes_of_session(server._process.pid).values()
    return any(re.match(r"\S*haproxy ", command) for command in commands)


def answers(server: Server) -> bool:
    body = {"prompt": "abc", "max_tokens": 4}
    try:
        return server.http.post("/v1/completions", json=body, timeout=30).status_code == 200
    except httpx.HTTPError:
        return False


def test_no_stream_notices_that_serves_controller_dies(server: Server) -> None:
    undisturbed = asyncio.run(streams(server, lambda: None))
    said = asyncio.run(streams(server, lambda: kill(server, "^ray::ServeController")))
    assert said == undisturbed
    server.eventually(lambda: answers(server))
    server.eventually(server.is_ready)
    assert asyncio.run(streams(server, lambda: None)) == undisturbed


def test_a_dead_proxy_cuts_its_connections_and_leaves_nothing_running(server: Server) -> None:
    """Their clients have to come again."""
    undisturbed = asyncio.run(streams(server, lambda: None))
    proxy = r"^\S*haproxy " if is_proxied_by_haproxy(server) else "^ray::ProxyActor"

    def all_are_cut() -> bool:
        """The first may have ended when the last one begins."""
        said = asyncio.run(streams(server, lambda: kill(server, proxy)))
        server.eventually(lambda: answers(server))
        return all(isinstance(answer, CutError) for answer in said)

    assert any(all_are_cut() for _ in range(3))
    server.eventually(lambda: server.pages_used() == 0)
    assert asyncio.run(streams(server, lambda: None)) == undisturbed


@pytest.mark.parametrize("told", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("mode", [{}, THROUGHPUT_MODE], ids=["default", "throughput"])
def test_a_server_that_is_told_to_end_lets_its_streams_end(
    checkpoint: Path, tmp_path: Path, told: signal.Signals, mode: dict[str, str]
) -> None:
    """Whatever of it outlives it is a failure of `Server`."""
    router = {"model": str(checkpoint), **SETTINGS}
    patient = {"stop_timeout_s": STOP_S}
    with Server(tmp_path, router, mode, arguments={"openai": patient}) as server:

        def end() -> None:
            server._process.send_signal(told)
            server._process.wait(2 * STOP_S)

        said = asyncio.run(streams(server, end))
        assert all(isinstance(answer, str) for answer in said), said
        assert server._process.returncode == 0
        assert "*** SIG" not in server.log.read_text()  # no stack of C++


def test_a_second_signal_ends_streams_that_would_have_gone_on(
    checkpoint: Path, tmp_path: Path
) -> None:
    router = {"model": str(checkpoint), **SETTINGS}
    patient = {"stop_timeout_s": 100 * STOP_S}
    with Server(tmp_path, router, OPEN, arguments={"openai": patient}) as server:

        def end() -> None:
            server._process.send_signal(signal.SIGTERM)
            server.eventually(lambda: "A second signal" in server.log.read_text())
            server._process.send_signal(signal.SIGTERM)
            server._process.wait(STOP_S)

        said = asyncio.run(streams(server, end))
        assert any(isinstance(answer, CutError) for answer in said), said


def test_a_serve_that_never_ends_keeps_no_server_running(checkpoint: Path, tmp_path: Path) -> None:
    router = {"model": str(checkpoint), **SETTINGS}
    with Server(tmp_path, router) as server:
        commands = processes_of_session(server._process.pid).items()
        [controller] = [pid for pid, what in commands if what.startswith("ray::ServeController")]
        os.kill(controller, signal.SIGSTOP)
        server._process.send_signal(signal.SIGINT)
        assert server._process.wait(STOP_S) == 1
        assert "what was started here is killed" in server.log.read_text()


def test_an_ingress_that_is_deployed_anew_ends_its_streams_first(
    server: Server, checkpoint: Path, tmp_path: Path
) -> None:
    router = {"model": str(checkpoint), **SETTINGS}
    undisturbed = asyncio.run(streams(server, lambda: None))
    before = server.replicas("openai")

    def deploy() -> None:
        environment = {**OPEN, "RAY_ADDRESS": server.address}
        arguments = {"openai": {"keep_alive_s": 3}}
        anew = Server(tmp_path, router, environment, arguments=arguments, port=server.port).begin()
        try:
            server.eventually(lambda: bool(set(server.replicas("openai")) - set(before)))
        finally:
            anew.kill()  # told to end, it would end all that it has joined
            anew.wait()

    said = asyncio.run(streams(server, deploy))
    assert said == undisturbed
    server.eventually(lambda: not set(before) & set(server.replicas("openai")))
    assert asyncio.run(streams(server, lambda: None)) == undisturbed
