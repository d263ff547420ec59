"""Loads a running server as its users would and prints what they would feel.

    python -m tests.bench.online [--url http://127.0.0.1:8000/v1] [--concurrency 1 8 32]
    python -m tests.bench.online --frontend [--ingresses 2]

For each concurrency: output tokens a second, time to first token, time between tokens.
"""

import argparse
import asyncio
import random

from rich.console import Console
from rich.progress import track
from rich.table import Table

from serve_app.command.bench.client import Server, first_model
from serve_app.command.bench.words import count_words
from tests.bench import frontend
from tests.bench.load.workloads import ITL, SPEED, TTFT, Distinct

FIGURES = (SPEED, *TTFT, *ITL)


async def main(arguments: argparse.Namespace) -> None:
    url = arguments.url.rstrip("/")
    server = Server(url, url, arguments.model or await first_model(url))
    workload = Distinct(prompt=arguments.prompt, out=arguments.out, requests=arguments.requests)
    seed = random.randrange(1 << 30)  # else a second run finds the first one's prompts cached
    words = await count_words(server, str(seed))
    await workload.run(server, words, 2, f"{seed} warm-up")
    table = Table(title=f"{server.model}: {workload.prompt} tokens in, {workload.out} out")
    for column in ("clients", *FIGURES, "failed"):
        table.add_column(column, justify="right")
    for clients in track(arguments.concurrency, transient=True, auto_refresh=False):
        run = await workload.run(server, words, clients, f"{seed} {clients}")
        figures = [f"{run.figures[name]:.1f}" for name in FIGURES]
        table.add_row(str(clients), *figures, str(len(run.errors)))
    Console(width=100).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", help="the server's first one without it")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=4, help="of each client")
    parser.add_argument("--prompt", type=int, default=64, help="tokens")
    parser.add_argument("--out", type=int, default=64, help="tokens")
    parser.add_argument("--frontend", action="store_true", help="a server of its own, no engine")
    parser.add_argument("--ingresses", type=int, default=1, help="processes, with --frontend")
    arguments = parser.parse_args()
    if arguments.frontend:
        frontend.main(arguments.ingresses)
    else:
        asyncio.run(main(arguments))
