"""The cost of a request and a token before any engine: the real graph over a model that is free.

`python -m tests.bench.online --frontend` starts a server in throughput mode behind HAProxy, loads
it over plain sockets, and counts the CPU time of each of its processes.
"""

import argparse
import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tests.e2e.server import HAPROXY_PORTS, THROUGHPUT_MODE, free_port, processes_of_session

ROLES = (
    ("ingress", r"ServeReplica:openai"),
    ("model", r"ServeReplica:model-"),
    ("router", r"ServeReplica:router"),
    ("proxy", r"haproxy|ProxyActor|HAProxy"),
    ("raylet", r"raylet"),
    ("gcs", r"gcs_server"),
)
COLUMNS = (*(role for role, _ in ROLES), "other", "client")
CLIENTS = 64
WARM_UPS = 20
TICKS = os.sysconf("SC_CLK_TCK")
HEAD = "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


def serve_forever(port: int, ingresses: int) -> None:
    import ray
    from ray import serve

    from deployments.openai.deployment import OpenAIIngress
    from serve_app.ingress_arguments import IngressArguments
    from tests.bench.free_model import SETTINGS, free_model, free_router

    ray.init(include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    serve.run(free_model(), name=SETTINGS.application, route_prefix=None)
    serve.run(free_router(), name="router", route_prefix=None)
    openai = OpenAIIngress.options(num_replicas=ingresses)  # type: ignore[attr-defined]
    settings = IngressArguments().ingress_settings()
    serve.run(openai.bind(settings), name="openai", route_prefix="/v1")
    print("ready", flush=True)
    with suppress(KeyboardInterrupt):
        signal.pause()


@contextmanager
def server(port: int, ingresses: int = 1) -> Iterator[int]:
    """The id of the session that its processes share."""
    environment = {
        **os.environ,
        **THROUGHPUT_MODE,
        **{name: str(free_port()) for name in HAPROXY_PORTS},
        "RAY_ADDRESS": "local",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    arguments = ["--serve", str(port), "--ingresses", str(ingresses)]
    command = [sys.executable, "-m", "tests.bench.frontend", *arguments]
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        if not any("ready" in line for line in process.stdout):
            raise RuntimeError("the server did not start")
        yield process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(60)
        for pid in processes_of_session(process.pid):
            os.kill(pid, signal.SIGKILL)


def cpu_seconds(session: int) -> dict[str, float]:
    """CPU time so far of each role's processes; the client is this one."""
    spent = defaultdict(float, client=time.process_time())
    for pid, command in processes_of_session(session).items():
        role = next((role for role, pattern in ROLES if re.search(pattern, command)), "other")
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent[role] += (int(fields[11]) + int(fields[12])) / TICKS
    return spent


class Connection:
    """One kept-alive connection: the least a client can do."""

    async def open(self, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port)

    async def post(self, path: str, body: object) -> int:
        """Sends a request and reads its answer; the number of `data:` lines in it."""
        raw = json.dumps(body).encode()
        head = f"{HEAD.format(path=path)}content-length: {len(raw)}\r\n\r\n"
        self._writer.write(head.encode() + raw)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        assert answer.startswith(b"http/1.1 200"), answer
        length = re.search(rb"content-length: (\d+)", answer)
        if length is not None:
            return (await self._reader.readexactly(int(length[1]))).count(b"data: ")
        return await self._chunks()

    async def _chunks(self) -> int:
        data = 0
        while size := int(await self._reader.readline(), 16):
            data += (await self._reader.readexactly(size + 2)).count(b"data: ")
        await self._reader.readline()
        return data

    def close(self) -> None:
        self._writer.close()


async def load(port: int, path: str, body: object, clients: int, requests: int, name: str) -> int:
    """All requests, `clients` at a time; the number of `data:` lines that came."""
    numbers = iter(range(requests))
    data = 0
    with Progress(transient=True) as progress:
        bar = progress.add_task(name, total=requests)

        async def work() -> None:
            nonlocal data
            connection = Connection()
            await connection.open(port)
            for number in numbers:
                came = await connection.post(path, body)
                data += came
                if number % clients == 0:  # what it costs is the client's, too
                    progress.update(bar, completed=number)
            connection.close()

        await asyncio.gather(*(work() for _ in range(clients)))
    return data


def warm_up(port: int, path: str, body: object, clients: int) -> None:
    """HAProxy restarts as the ingress becomes ready, and closes the connections that it has."""
    for _ in range(WARM_UPS):
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            asyncio.run(load(port, path, body, clients, 200, "warm up"))
            return
    raise RuntimeError("the server closes its connections")


def main(ingresses: int = 1, clients: int = CLIENTS) -> None:
    port = free_port()
    message = {"messages": [{"role": "user", "content": "Say it."}]}
    unary = {**message, "max_tokens": 1}
    stream = {**message, "max_tokens": 512, "stream": True}
    title = f"front end, {clients} clients, HAProxy, {ingresses} ingress processes"
    path, table = "/v1/chat/completions", Table(title=title)
    for column in ("work", "a second", "CPU us each", *COLUMNS):
        table.add_column(column, justify="right")
    with server(port, ingresses) as session:
        warm_up(port, path, unary, clients)
        for name, body, requests in (
            ("requests", unary, 3000),
            ("SSE tokens", stream, 4 * clients),
        ):
            before, start = cpu_seconds(session), time.perf_counter()
            data = asyncio.run(load(port, path, body, clients, requests, name))
            seconds = time.perf_counter() - start
            after = cpu_seconds(session)
            done = data or requests
            each = [1e6 * (after[role] - before[role]) / done for role in COLUMNS]
            figures = (
                f"{done / seconds:.0f}",
                f"{sum(each):.0f}",
                *(f"{cost:.0f}" for cost in each),
            )
            table.add_row(name, *figures)
    Console(width=120).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--serve", type=int, metavar="PORT", required=True)
    parser.add_argument("--ingresses", type=int, default=1)
    arguments = parser.parse_args()
    serve_forever(arguments.serve, arguments.ingresses)
