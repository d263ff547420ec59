"""Replays long sessions of agents in turns on a cache for one of them, with a restart in the midst.

    python -m tests.bench.tiers.agents MODEL.gguf [--llama FOLDER_OF_LLAMA_SERVER] [--turns 20]
        [--new 100] [--sessions 3] [--only manta|manta-disk|llama|llama-ram]

Each turn adds what a tool has said to a session's prompt, and asks for a few tokens. The prompts
are ids, the same for all. Seconds are those from asking to the last token; starts are not counted.
"""

import argparse
import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError
from urllib.request import Request, urlopen

import torch
from rich.console import Console
from rich.table import Table

from deployments.engine.core import EngineCore
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loader import load_model
from deployments.engine.threads import one_thread
from tests.bench.tiers.engines import IDENTITY, Ids, Words, ask, pages_for

Ask = Callable[[Ids, int], int]  # a prompt and how many tokens; returns how many were cached
Begin = Callable[[], AbstractContextManager[Ask]]
N_OUT = 8
ROOM = 64  # tokens of a session beside its prompt
RUNS = ("manta", "manta-disk", "llama", "llama-ram")


@contextmanager
def manta(model: str, n_tokens: int, folder: Path | None) -> Iterator[Ask]:
    kept = None if folder is None else str(folder)
    limits = EngineLimits(n_pages=pages_for(n_tokens), max_running=1, cache_disk=kept)
    with one_thread():
        loaded = load_model(model)
    core = EngineCore(loaded, frozenset(), limits, identity=IDENTITY)
    try:
        yield lambda prompt, n: ask(core, [prompt], n).n_cached[0]
    finally:
        core.shutdown()


@contextmanager
def llama_server(binary: Path, model: str, n_tokens: int, cache_ram: int) -> Iterator[Ask]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    threads = str(torch.get_num_threads())
    options = ["-m", model, "-np", "1", "-c", str(n_tokens), "-t", threads, "-tb", threads]
    options += ["--cache-ram", str(cache_ram), "--port", str(port), "--no-webui"]
    command = [str(binary), *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(f"{address}/health")
            yield lambda prompt, n: _complete(address, prompt, n)
        finally:
            server.terminate()


def _wait_for(address: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            with urlopen(address, timeout=seconds):
                return
        except (URLError, ConnectionError):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _complete(address: str, prompt: Ids, n: int) -> int:
    body = {"prompt": prompt, "n_predict": n, "temperature": 0, "ignore_eos": True}
    asked = Request(f"{address}/completion", json.dumps(body).encode())
    with urlopen(asked, timeout=600) as answer:
        return int(json.load(answer)["timings"]["cache_n"])


def replay(begin: Begin, turns: int, new: int, sessions: int) -> list[float]:
    """Seconds of the first half, of the turn behind the restart and of the rest; and the share of
    the prompts' tokens that were cached."""
    words = Words()
    prompts: list[Ids] = [words(new) for _ in range(sessions)]
    parts = [range(turns // 2), range(turns // 2, turns // 2 + 1), range(turns // 2 + 1, turns)]
    seconds, n_cached, n_asked = [], 0, 0
    for starts in (parts[:1], parts[1:]):
        with begin() as complete:
            complete(words(32), 1)  # compiles
            for part in starts:
                begun = time.perf_counter()
                for _ in part:
                    for index, prompt in enumerate(prompts):
                        n_cached += complete(prompt, N_OUT)
                        n_asked += len(prompt)
                        prompts[index] = prompt + words(new)
                seconds.append(time.perf_counter() - begun)
    return [*seconds, n_cached / n_asked]


def runs_of(chosen: argparse.Namespace, folder: Path) -> dict[str, Begin]:
    size = chosen.turns * chosen.new + ROOM
    binary = Path(chosen.llama or "") / "llama-server"
    return {
        "manta": lambda: manta(chosen.model, size, None),
        "manta-disk": lambda: manta(chosen.model, size, folder),
        "llama": lambda: llama_server(binary, chosen.model, size, 0),
        "llama-ram": lambda: llama_server(binary, chosen.model, size, 8192),
    }


def main(chosen: argparse.Namespace) -> None:
    table = Table("", "first half s", "turn behind the restart s", "rest s", "all s", "cached")
    names: Sequence[str] = [chosen.only] if chosen.only else RUNS[: 4 if chosen.llama else 2]
    with TemporaryDirectory(prefix="manta-agents-") as folder:
        runs = runs_of(chosen, Path(folder))
        for name in names:
            *seconds, cached = replay(runs[name], chosen.turns, chosen.new, chosen.sessions)
            figures = [f"{figure:.2f}" for figure in (*seconds, sum(seconds))]
            table.add_row(name, *figures, f"{100 * cached:.0f} %")
    Console(width=100).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model")
    parser.add_argument("--llama")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--new", type=int, default=100, help="tokens that a turn adds")
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--only", choices=RUNS)
    main(parser.parse_args())
