"""Mixed traffic for a quarter of an hour: whether a server that lives long keeps what it used.

    python -m tests.soak [--minutes 15] [--throughput]

Clients of all protocols ask valid and wrong things, and many leave before their answer's end.
Afterwards nothing may be left that a request took: sequences, pages, their bodies. In the last
two thirds of the time no process of the graph may grow by 5 %, nor get more files or threads. No
log may tell of a failure.
"""

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tests.checkpoints import save_checkpoint
from tests.e2e.server import THROUGHPUT_MODE, Server
from tests.e2e.shared.asked import ASKED, Asked
from tests.malformed.cases import Malformed, cases

CLIENTS = 12
SEED = 7
SAMPLE_S = 2.0
WARM_SHARE = 1 / 3  # of the time, in which caches and pools fill
MAX_GROWTH = 1.05
MAX_MORE = 2  # files or threads; a thread pool may have grown by one between two samples
SETTLE_S = 60.0
WATCHED = {  # deployment and application of each, of which there is one replica
    "openai": ("[^:]*", "openai"),
    "anthropic": ("[^:]*", "anthropic"),
    "llama": ("[^:]*", "llama"),
    "router": ("Router", "[^:]*"),
    "model": ("MantaModel", "[^:]*"),
}
PRESETS = """
version = 1
[tiny]
model = tiny
dtype = float32
num-cpus = 0.5
n-pages = 320
load-on-startup = true
pinned = true
"""


@dataclass
class Process:
    """The memory, files and threads of one process of the graph, sample by sample."""

    rss: list[int] = field(default_factory=list)  # bytes
    files: list[int] = field(default_factory=list)
    threads: list[int] = field(default_factory=list)

    def take(self, pid: int) -> None:
        status = (Path("/proc") / str(pid) / "status").read_text()
        self.rss.append(int(status.partition("VmRSS:")[2].split()[0]) << 10)
        self.threads.append(int(status.partition("Threads:")[2].split()[0]))
        self.files.append(len(list((Path("/proc") / str(pid) / "fd").iterdir())))


def before_and_after(samples: Sequence[int]) -> tuple[float, float]:
    """Medians of the tenth that follows the warm share, and of the last tenth."""
    tenth = max(1, len(samples) // 10)
    warm = int(len(samples) * WARM_SHARE)
    return statistics.median(samples[warm : warm + tenth]), statistics.median(samples[-tenth:])


class Traffic:
    """Clients that ask at random, each one request after the other."""

    def __init__(self, url: str, ends: float) -> None:
        self._url = url
        self._ends = ends
        self._rng = random.Random(SEED)
        self._wrong = [case for case in cases() if len(case.body) < 1 << 20]
        self.counts: Counter[str] = Counter()
        self.unexpected: Counter[str] = Counter()
        self._kinds: dict[str, Callable[[httpx.AsyncClient], Awaitable[None]]] = {
            "unary": self._unary,
            "streamed": self._streamed,
            "wrong": self._refused,
            "stream left": self._stream_left,
            "answer left": self._answer_left,
            "body left": self._body_left,
            "kept stream left": self._kept_stream_left,
        }

    async def run(self) -> None:
        async with httpx.AsyncClient(base_url=self._url, timeout=120) as client:
            await asyncio.gather(*(self._client(client) for _ in range(CLIENTS)))

    async def _client(self, client: httpx.AsyncClient) -> None:
        while time.monotonic() < self._ends:
            kind = self._rng.choice(list(self._kinds))
            try:
                await self._kinds[kind](client)
            except (httpx.HTTPError, OSError) as error:
                self.unexpected[f"{kind}: {error!r}"] += 1
            self.counts[kind] += 1

    def _expect(self, status: int, answer: httpx.Response, what: object) -> None:
        if answer.status_code != status:
            self.unexpected[f"{answer.status_code} in the place of {status}: {what}"] += 1

    async def _unary(self, client: httpx.AsyncClient) -> None:
        asked = self._rng.choice(ASKED)
        answer = await client.post(asked.path, json=asked.body, headers=asked.headers)
        self._expect(200, answer, asked.name)

    async def _refused(self, client: httpx.AsyncClient) -> None:
        case: Malformed = self._rng.choice(self._wrong)
        headers = dict(case.headers)
        answer = await client.request(case.method, case.path, content=case.body, headers=headers)
        self._expect(case.status, answer, case)

    async def _streamed(self, client: httpx.AsyncClient) -> None:
        await self._stream(client, self._rng.choice(ASKED))

    async def _stream_left(self, client: httpx.AsyncClient) -> None:
        await self._stream(client, self._long(), leave_after=self._rng.randint(0, 20))

    async def _kept_stream_left(self, client: httpx.AsyncClient) -> None:
        """It goes on without a reader; another one reads its beginning."""
        name = f"soak-{self._rng.getrandbits(64):x}"
        body = {"prompt": "Once", "n_predict": 40, "stream": True}
        headers = {"X-Conversation-Id": name}
        async with client.stream("POST", "/completion", json=body, headers=headers) as answer:
            self._expect(200, answer, "kept stream")
            await anext(answer.aiter_lines(), None)
        async with client.stream("GET", "/v1/stream", params={"conv_id": name}) as answer:
            await anext(answer.aiter_lines(), None)

    async def _answer_left(self, client: httpx.AsyncClient) -> None:
        asked = self._long()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._rng.uniform(0.01, 0.5)):
                await client.post(asked.path, json=asked.body, headers=asked.headers)

    async def _body_left(self, client: httpx.AsyncClient) -> None:
        """Its connection closes in the middle of its body."""
        url = httpx.URL(self._url)
        _, writer = await asyncio.open_connection(url.host, url.port)
        head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json"
        writer.write(f"{head}\r\nContent-Length: 100000\r\n\r\n".encode() + b" " * 50_000)
        await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()

    def _long(self) -> Asked:
        """It takes long enough to be left."""
        asked = self._rng.choice(
            [candidate for candidate in ASKED if candidate.name.endswith("text")]
        )
        limit = "max_output_tokens" if "max_output_tokens" in asked.body else "max_tokens"
        return Asked(
            asked.name, asked.path, {**asked.body, limit: 500}, "", "", headers=asked.headers
        )

    async def _stream(
        self, client: httpx.AsyncClient, asked: Asked, leave_after: int | None = None
    ) -> None:
        body = {**asked.body, "stream": True}
        async with client.stream("POST", asked.path, json=body, headers=asked.headers) as answer:
            self._expect(200, answer, asked.name)
            number = 0
            async for _ in answer.aiter_lines():
                number += 1
                if leave_after is not None and number > leave_after:
                    return


async def watch(server: Server, processes: dict[str, Process], ends: float) -> None:
    pids = {name: pid for name, kind in WATCHED.items() for pid in server.replicas(*kind)}
    with Progress(
        TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), transient=True
    ) as bar:
        began = time.monotonic()
        task = bar.add_task("soaking", total=ends - began)
        while (now := time.monotonic()) < ends:
            for name, pid in pids.items():
                processes.setdefault(name, Process()).take(pid)
            bar.update(task, completed=now - began)
            await asyncio.sleep(SAMPLE_S)


def is_empty(server: Server) -> bool:
    stats = server.http.get("/stats").json()
    gauges = ("active_requests", "waiting_requests", "pages_used")
    lines = server.http.get("/metrics").text.splitlines()
    open_requests = [line for line in lines if line.startswith("manta_inflight_requests{")]
    return not any(replica[name] for replica in stats["replicas"] for name in gauges) and not any(
        float(line.rpartition(" ")[2]) for line in open_requests
    )


def failures(server: Server) -> list[str]:
    """The last lines of the tracebacks in the logs of all replicas."""
    found = []
    for path in (server.session / "logs" / "serve").glob("replica_*.log"):
        for part in path.read_text().split("Traceback (most recent call last)")[1:]:
            lines = part.splitlines()
            found.append(next((line for line in lines[1:] if line[:1].strip()), ""))
    return found


def report(
    processes: dict[str, Process], traffic: Traffic, empty: bool, failed: Sequence[str]
) -> bool:
    """Prints what was seen; returns whether all holds."""
    console = Console(width=100)
    table = Table("process", "RSS MiB", "growth", "files", "threads", "")
    good = empty and not traffic.unexpected and not failed
    for name, process in processes.items():
        rss, files, threads = map(before_and_after, (process.rss, process.files, process.threads))
        flat = rss[1] < rss[0] * MAX_GROWTH
        flat = flat and all(after <= before + MAX_MORE for before, after in (files, threads))
        good = good and flat
        table.add_row(
            name,
            f"{rss[0] / 2**20:.0f} -> {rss[1] / 2**20:.0f}",
            f"{100 * (rss[1] / rss[0] - 1):+.1f} %",
            *(f"{before:.0f} -> {after:.0f}" for before, after in (files, threads)),
            "ok" if flat else "GROWS",
        )
    console.print(table)
    console.print("requests: " + ", ".join(f"{n} {name}" for name, n in traffic.counts.items()))
    for what, n in traffic.unexpected.most_common(20):
        console.print(f"unexpected, {n} times: {what}")
    for what, n in Counter(failed).most_common(20):
        console.print(f"logged, {n} times: {what}")
    console.print("nothing is left" if empty else "sequences or pages are left")
    return good


def soak(server: Server, minutes: float) -> bool:
    ends = time.monotonic() + minutes * 60
    processes: dict[str, Process] = {}
    traffic = Traffic(server.url, ends)

    async def run() -> None:
        await asyncio.gather(traffic.run(), watch(server, processes, ends))

    asyncio.run(run())
    empty = True
    try:
        server.eventually(lambda: is_empty(server), SETTLE_S)
    except AssertionError:
        empty = False
    return report(processes, traffic, empty, failures(server))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=15)
    parser.add_argument("--throughput", action="store_true", help="behind HAProxy")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        save_checkpoint(folder / "tiny")
        presets = folder / "models.ini"
        presets.write_text(PRESETS)
        environment = THROUGHPUT_MODE if arguments.throughput else {}
        with Server(folder, {"presets": str(presets)}, environment) as server:
            return 0 if soak(server, arguments.minutes) else 1


if __name__ == "__main__":
    sys.exit(main())
