"""A real `serve run` for tests: its own ports, its own Ray, its own folders, and nothing left."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import cycle, islice
from pathlib import Path

import httpx
import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parents[2]
START_S = 400  # half of it on a slow machine whose cores are busy with other tests
STOP_S = 100  # after 55 s a server kills what has not ended
# Between two looks at a server, which has to answer them while it works.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.5
THROUGHPUT_MODE = {"RAY_SERVE_ENABLE_HA_PROXY": "1", "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"}
HAPROXY_PORTS = (
    "RAY_SERVE_HAPROXY_METRICS_PORT",
    "RAY_SERVE_HAPROXY_STATS_PORT",
    "RAY_SERVE_FALLBACK_PROXY_HTTP_PORT",
    "RAY_SERVE_FALLBACK_PROXY_GRPC_PORT",
)
# Beside tests, Ray and Serve look less often at what they always look at.
CALM = {
    "LOG_NAME_UPDATE_INTERVAL_S": "2",
    "REPORTER_UPDATE_INTERVAL_MS": "30000",
    "RAY_SERVE_CONTROL_LOOP_INTERVAL_S": "0.2",
    "RAY_SERVE_METRICS_EXPORT_INTERVAL_MS": "1000",
}
MODES = ("default", "throughput")
# For tests of what no proxy has a part in. All others run in both modes, exhaustively.
THROUGHPUT = pytest.mark.parametrize("server", ["throughput"], indirect=True)
DEFAULT = pytest.mark.parametrize(
    "server", [pytest.param("default", marks=pytest.mark.exhaustive)], indirect=True
)


class Server:
    """The whole graph of `serve_app/serve.yaml`, its router with arguments of the test's.

    `config` takes the place of what stands at the top of that file. `arguments` are of other
    applications, by name. `port` is the one of a server that it takes over.
    """

    def __init__(
        self,
        folder: Path,
        router: Mapping[str, object],
        environment: Mapping[str, str] | None = None,
        config: Mapping[str, object] | None = None,
        arguments: Mapping[str, object] | None = None,
        port: int | None = None,
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        # One for all: each makes a TLS context, 30 ms, which a loop that polls would live on. Its
        # connections are used once: what is asked next may be another process.
        self.http = httpx.Client(
            base_url=self.url, timeout=120, limits=httpx.Limits(max_keepalive_connections=0)
        )
        self.log = folder / "serve.log"
        read = yaml.safe_load((REPOSITORY / "serve_app" / "serve.yaml").read_text())
        read["http_options"]["port"] = self.port
        for name, args in {"router": dict(router), **(arguments or {})}.items():
            next(a for a in read["applications"] if a["name"] == name)["args"] = args
        path = folder / "serve.yaml"
        path.write_text(yaml.safe_dump({**read, **(config or {})}))
        self._environment = {
            **CALM,
            **os.environ,
            "RAY_ADDRESS": "local",
            "RAY_USAGE_STATS_ENABLED": "0",
            "MANTA_ENCRYPTION_KEY": "0123456789abcdef" * 2,  # else a file at home has one
            "RAY_worker_niceness": "0",  # else whatever runs beside a test starves what it tests
            "XDG_DATA_HOME": str(folder / "data"),  # else chats are stored at home
            **{name: str(free_port()) for name in HAPROXY_PORTS},
            **(environment or {}),
        }
        # What the script `serve` of the environment calls.
        self._command = [sys.executable, "-m", "serve_app.command.main", "run", str(path)]

    def started_by(self, *flags: str) -> "Server":
        """Has `manta serve` start it with these, in the place of `serve run` of the config."""
        command = [sys.executable, "-m", "serve_app.command.manta", "serve"]
        self._command = [*command, "--port", str(self.port), *flags]
        return self

    def begin(self) -> "subprocess.Popen[bytes]":
        """Returns before it is ready."""
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=REPOSITORY,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._process

    def __enter__(self) -> "Server":
        self.begin()
        try:
            self.eventually(self.is_ready, START_S)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    @contextmanager
    def ending_later(self, ending: list["Server"]) -> Iterator["Server"]:
        """Tells it to end when the block is left, and adds it to those that will be waited for."""
        self.__enter__()
        yield self
        self._tell_to_end()
        ending.append(self)

    def stats(self) -> dict[str, float]:
        answer: dict[str, float] = self.http.get("/stats").json()
        return answer

    def rest(self) -> None:
        """Waits until no request of other tests' clients is left in an engine."""

        def is_idle() -> bool:
            now = self.stats()
            return now["active_requests"] == now["waiting_requests"] == 0

        self.eventually(is_idle)

    def pages_used(self) -> int:
        answer = self.http.get("/stats").json()
        return sum(replica["pages_used"] for replica in answer["replicas"])

    def failovers(self, phase: str = "mid_stream") -> float:
        """How many sequences went on elsewhere, after their first token or before it."""
        lines = self.http.get("/metrics").text.splitlines()
        counts = [line for line in lines if f'phase="{phase}"' in line and "_total{" in line]
        return sum(float(line.rpartition(" ")[2]) for line in counts)

    @property
    def session(self) -> Path:
        """The folder in which its Ray keeps logs and what it knows of its ports."""
        commands = processes_of_session(self._process.pid).values()
        found = (re.search(r"--session-dir=(\S+)", command) for command in commands)
        return Path(next(match[1] for match in found if match))

    @property
    def address(self) -> str:
        """The address of its Ray."""
        commands = processes_of_session(self._process.pid).values()
        found = (re.search(r"--gcs-address=(\S+)", command) for command in commands)
        return next(match[1] for match in found if match)

    def replicas(self, deployment: str, application: str = "[^:]*") -> list[int]:
        """Processes of a deployment's replicas."""
        title = rf"^ray::ServeReplica:{application}:{deployment}(\.|$)"  # with what it runs
        named = re.compile(title)
        commands = processes_of_session(self._process.pid).items()
        return [pid for pid, command in commands if named.search(command)]

    def kill(self, deployment: str, application: str = "[^:]*") -> None:
        """Kills all of a deployment's replicas as a crash would."""
        pids = self.replicas(deployment, application)
        assert pids, f"no replica of {deployment}"
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    def eventually(self, condition: Callable[[], bool], seconds: float = 120) -> None:
        """Returns as soon as the condition holds; fails with the server's log if it never does."""
        deadline, pause = time.monotonic() + seconds, FIRST_PAUSE_S
        while not condition():
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise AssertionError(f"not within {seconds} s:\n{self.log.read_text()[-8000:]}")
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE_S)

    def is_ready(self) -> bool:
        try:
            health = self.http.get("/health", timeout=5)
            models = self.http.get("/v1/models", timeout=5)
        except httpx.HTTPError:
            return False
        for answer in (health, models):  # from the first connection on
            assert answer.headers["content-type"] == "application/json", answer.text
            assert answer.status_code in (200, 503), answer.text
            assert answer.status_code == 200 or answer.headers["retry-after"]
        if health.status_code != 200 or models.status_code != 200:
            return False
        loaded: bool = health.json()["model_loaded"]
        return loaded

    def _stop(self) -> None:
        self._tell_to_end()
        self.wait_ended()

    def _tell_to_end(self) -> None:
        """Sends SIGINT, as a person does by Ctrl-C."""
        self.http.close()
        self._process.send_signal(signal.SIGINT)

    def wait_ended(self) -> None:
        """Whatever of its session is left then is a failure."""
        try:
            self._process.wait(STOP_S)
        finally:
            left = self._outlast(processes_of_session(self._process.pid))
        assert not left, f"these outlived the server: {left}"

    def _outlast(self, processes: dict[int, str]) -> dict[int, str]:
        """Gives Ray's own processes the time they take to see that their head has gone."""
        deadline = time.monotonic() + STOP_S / 2
        while processes and time.monotonic() < deadline:
            time.sleep(0.05)
            processes = processes_of_session(self._process.pid)
        for pid in processes:
            os.kill(pid, signal.SIGKILL)
        return processes


def processes_of_session(session: int) -> dict[int, str]:
    """Living processes by id, each with its command."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                command = (entry / "cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found[int(entry.name)] = command.strip()
    return found


def _ports() -> Iterator[int]:
    """Yields ports below those that the kernel deals out.

    Ray takes dozens of the kernel's before a server comes to listen on its own. No two processes of
    a run have one in common, and two runs on one host do not begin at the same one.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    n_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    own = range(20_000 + worker, 30_000, n_workers)
    return islice(cycle(own), os.getppid() % len(own), None)


_PORTS = _ports()


def free_port() -> int:
    """One that nothing listens on, and that no other caller has been given."""
    for port in _PORTS:
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port
    raise AssertionError
