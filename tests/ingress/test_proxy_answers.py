"""While applications start their paths are answered with a 503 of their own, by either proxy."""

import asyncio
import json
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psutil
import pytest
from ray.serve._private.common import DeploymentID, EndpointInfo
from ray.serve._private.haproxy import (
    BackendConfig,
    HAProxyApi,
    HAProxyConfig,
    ServerConfig,
    get_haproxy_binary,
)
from ray.serve._private.http_util import RequestIdMiddleware
from ray.serve._private.proxy_router import ProxyRouter
from ray.serve.config import HTTPOptions, gRPCOptions
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from deployments.ingress.haproxy_answers import completed
from deployments.ingress.proxy_answers import StartingAnswers
from tests.openai.serving import http

BODIES = {prefix: json.dumps({"of": prefix}) for prefix in ("/", "/v1", "/v1/messages")}
PATHS = ("/health", "/v1/models", "/v1/messages", "/v1/messages/count_tokens", "/v12")


class Handle:
    """A deployment, as Serve's router knows it."""

    is_up = True

    def running_replicas_populated(self) -> bool:
        return self.is_up


class Proxy:
    """Serve's proxy, as far as an answer of a path that runs."""

    def __init__(self) -> None:
        self.handles: dict[str, Handle] = {}
        self.proxy_router = ProxyRouter(lambda found, _: self.handles[found.app_name])

    def route(self, *prefixes: str, is_up: bool = True) -> None:
        found = {}
        for prefix in prefixes:
            handle = self.handles.setdefault(prefix, Handle())
            handle.is_up = is_up
            found[DeploymentID("d", prefix)] = EndpointInfo(route=prefix)
        self.proxy_router.update_routes(found)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("runs")(scope, receive, send)


def said(proxy: Proxy, answers: StartingAnswers) -> list[str]:
    async def ask() -> list[str]:
        async with http(answers) as client:
            return [described(await client.get(path)) for path in PATHS]

    return asyncio.run(ask())


def described(answer: httpx.Response) -> str:
    """The prefix whose body it is."""
    if answer.status_code != 503:
        return answer.text
    assert answer.headers["retry-after"] == "2"
    return str(answer.json()["of"])


def test_a_path_waits_for_its_own_application() -> None:
    proxy = Proxy()
    answers = StartingAnswers(RequestIdMiddleware(proxy), BODIES)  # as Serve wraps it
    assert said(proxy, answers) == ["/", "/v1", "/v1/messages", "/v1/messages", "/"]
    proxy.route("/", "/v1", is_up=False)
    assert said(proxy, answers) == ["/", "/v1", "/v1/messages", "/v1/messages", "/"]
    proxy.route("/", "/v1/messages")
    assert said(proxy, answers) == ["runs", "/v1", "runs", "runs", "runs"]
    proxy.route("/", "/v1", "/v1/messages")
    assert said(proxy, answers) == ["runs"] * 5
    proxy.route("/")  # an application that ran is never said to start
    assert said(proxy, answers) == ["runs"] * 5


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def haproxy(folder: Path, *prefixes: str) -> Iterator[str]:
    """Serve's own, with what Serve writes where applications of these prefixes have a replica that
    can't be reached, completed.
    """
    port = free_port()
    config = HAProxyConfig(
        http_options=HTTPOptions(host="127.0.0.1", port=port),
        grpc_options=gRPCOptions(),
        is_head=True,
        socket_path=str(folder / "s"),
        server_state_base=str(folder),
        server_state_file=str(folder / "state"),
        metrics_socket_path=str(folder / "m"),
        metrics_port=free_port(),
    )
    server = ServerConfig(name="s", host="127.0.0.1", port=1)
    running = {
        str(at): BackendConfig(name=f"b{at}", path_prefix=prefix, servers=[server])
        for at, prefix in enumerate(prefixes)
    }
    path = folder / "haproxy.cfg"
    HAProxyApi(config, running, str(path))._generate_config_file_internal()
    path.write_text(completed(path.read_text(), BODIES))
    pid = folder / "pid"
    # Its first process ends when the port is open.
    command = (get_haproxy_binary(), "-D", "-p", str(pid), "-f", str(path))
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    process = psutil.Process(int(pid.read_text()))
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.parametrize(
    ("prefixes", "answered"),
    [
        ((), ["/", "/v1", "/v1/messages", "/v1/messages", "/"]),
        (("/", "/v1"), ["", "", "/v1/messages", "/v1/messages", ""]),
        (("/v1/messages",), ["/", "/v1", "", "", "/"]),
        (("/", "/v1", "/v1/messages"), [""] * 5),
    ],
)
def test_haproxy_answers_for_what_has_no_replica(
    tmp_path: Path, prefixes: tuple[str, ...], answered: list[str]
) -> None:
    with haproxy(tmp_path, *prefixes) as url, httpx.Client(base_url=url) as client:
        for path, prefix in zip(PATHS, answered, strict=True):
            answer = client.get(path)
            if prefix:
                assert described(answer) == prefix
                assert answer.headers["content-type"] == "application/json"
            else:  # it was passed on
                assert answer.text not in BODIES.values()
        assert client.get("/-/routes").text not in BODIES.values()  # Serve's own
