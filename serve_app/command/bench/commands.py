"""`manta bench serve`: a load on any OpenAI-compatible server, as vLLM's command of that name."""

import asyncio
import json
import math
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from serve_app.command.bench.client import Server, TimedAnswer, first_model
from serve_app.command.bench.load import TITLES, Load, results, run
from serve_app.command.bench.words import count_words
from serve_app.command.client.connection import api_key as known_key
from serve_app.command.client.connection import server_url
from serve_app.command.errors import CommandError, Exit

CHAT = "/v1/chat/completions"
ENDPOINTS = ("/v1/completions", CHAT)
N_ERRORS = 3  # shown
TOTALS: Mapping[str, str] = {
    "completed": "Answers",
    "failed": "Failed",
    "duration": "Seconds",
    "total_input_tokens": "Tokens in",
    "total_output_tokens": "Tokens out",
    "request_throughput": "Requests/s",
    "output_throughput": "Tokens out/s",
    "total_token_throughput": "Tokens in and out/s",
}


@click.group()
def bench() -> None:
    """Measures a server."""


def _rate(ctx: click.Context, parameter: click.Parameter, text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not rate > 0:
        raise click.BadParameter("must be a number above 0, or inf", ctx, parameter)
    return rate


def _shares(ctx: click.Context, parameter: click.Parameter, text: str) -> list[float]:
    try:
        shares = [float(part) for part in text.split(",")]
    except ValueError:
        shares = []
    if not shares or not all(0 < share <= 100 for share in shares):
        raise click.BadParameter("must be numbers up to 100, with commas", ctx, parameter)
    return shares


@bench.command()
@click.option("--base-url", "--url", "url", metavar="URL", help="[MANTA_HOST, or 127.0.0.1:8000]")
@click.option("--api-key", metavar="KEY", help="[MANTA_API_KEY]")
@click.option("--model", "-m", help="[the server's first one]")
@click.option("--endpoint", type=click.Choice(ENDPOINTS), default=ENDPOINTS[0], show_default=True)
@click.option("--dataset-name", type=click.Choice(["random"]), default="random", show_default=True)
@click.option(
    "--input-len",
    "--random-input-len",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Tokens of a prompt",
)
@click.option(
    "--output-len",
    "--random-output-len",
    type=click.IntRange(1),
    default=128,
    show_default=True,
    help="Tokens of an answer",
)
@click.option(
    "--prefix-len",
    "--random-prefix-len",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    help="Tokens that all prompts begin with",
)
@click.option("--num-prompts", type=click.IntRange(1), default=100, show_default=True)
@click.option(
    "--request-rate",
    default="inf",
    callback=_rate,
    show_default=True,
    help="Requests a second; inf is all at once",
)
@click.option("--max-concurrency", type=click.IntRange(1), help="Most requests at once")
@click.option("--stops", is_flag=True, help="Send none of vLLM's fields: answers may end early")
@click.option("--seed", help="Prompts are of it  [others each time, so that none is cached]")
@click.option("--metric-percentiles", "shares", default="99", callback=_shares, show_default=True)
@click.option("--save-result", is_flag=True, help="Write the figures as JSON")
@click.option("--result-dir", type=click.Path(path_type=Path), default=".", show_default=True)
@click.option("--result-filename", metavar="NAME")
def serve(
    url: str | None,
    api_key: str | None,
    model: str | None,
    endpoint: str,
    dataset_name: str,
    input_len: int,
    output_len: int,
    prefix_len: int,
    num_prompts: int,
    request_rate: float,
    max_concurrency: int | None,
    stops: bool,
    seed: str | None,
    shares: list[float],
    save_result: bool,
    result_dir: Path,
    result_filename: str | None,
) -> None:
    """Sends prompts of random words to an OpenAI-compatible server, and says what its clients felt:
    time to first token (TTFT), between tokens (TPOT, ITL), whole answers (E2EL), tokens a second.
    """
    base, key = f"{server_url(url)}/v1", known_key(api_key)
    chosen = model or _first(base, key)
    server = Server(base, base, chosen, key, chats=endpoint == CHAT, runs_on=not stops)
    load = Load(
        requests=num_prompts,
        prompt=input_len,
        out=output_len,
        rate=request_rate,
        at_once=max_concurrency or 0,
        prefix=prefix_len,
        seed=str(random.randrange(1 << 30)) if seed is None else seed,
    )
    answers, seconds = _measured(server, load)
    found = results(answers, seconds, shares)
    _print(found, shares, chosen)
    _print_errors(answers)
    if save_result:
        about = {
            "base_url": base,
            "model_id": chosen,
            "endpoint": endpoint,
            "num_prompts": num_prompts,
            "request_rate": str(request_rate),
            "max_concurrency": max_concurrency,
            "input_len": input_len,
            "output_len": output_len,
            "seed": load.seed,
        }
        name = result_filename or f"manta-{int(time.time())}.json"
        result_dir.mkdir(parents=True, exist_ok=True)
        # JSON has no NaN: what could not be measured is left out.
        known = {name: value for name, value in found.items() if not math.isnan(value)}
        (result_dir / name).write_text(json.dumps({**about, **known}, indent=1) + "\n")
        click.echo(f"written: {result_dir / name}")
    if not found["completed"]:
        raise CommandError("no request got an answer")


def _first(base: str, key: str | None) -> str:
    try:
        return asyncio.run(first_model(base, key))
    except OSError as error:
        raise CommandError(f"no server answers at {base}: {error}", Exit.NO_SERVER) from error
    except (ValueError, LookupError) as error:
        refused = str(error).startswith(("HTTP/1.1 401", "HTTP/1.1 403"))
        status = Exit.WRONG_KEY if refused else Exit.FAILED
        raise CommandError(f"{base}/models: {error}", status) from error


def _measured(server: Server, load: Load) -> tuple[list[TimedAnswer], float]:
    """Raises CommandError where the server can't answer at all."""
    console = Console(stderr=True)

    async def measure() -> tuple[list[TimedAnswer], float]:
        words = await count_words(server, f"{load.seed} words")
        with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
            task = shown.add_task("requests", total=load.requests)
            return await run(server, load, words, lambda: shown.advance(task))

    try:
        return asyncio.run(measure())
    except RuntimeError as error:
        raise CommandError(str(error)) from error


def _print(found: Mapping[str, float], shares: Sequence[float], model: str) -> None:
    console = Console(highlight=False)
    totals = Table(box=SIMPLE_HEAD, show_header=False, title=model)
    for name, title in TOTALS.items():
        totals.add_row(title, f"{found[name]:,.2f}".removesuffix(".00"))
    table = Table(box=SIMPLE_HEAD)
    table.add_column("ms")
    kinds = ["mean", "median", *(f"p{share:g}" for share in shares)]
    for kind in kinds:
        table.add_column(kind, justify="right")
    for name, title in TITLES.items():
        values = (found[f"{kind}_{name}_ms"] for kind in kinds)
        row = ("-" if math.isnan(value) else f"{value:.1f}" for value in values)
        table.add_row(f"{title} ({name.upper()})", *row)
    console.print(totals, table)


def _print_errors(answers: Sequence[TimedAnswer]) -> None:
    errors = Counter(answer.error for answer in answers if answer.error)
    for error, times in errors.most_common(N_ERRORS):
        click.echo(f"{times} times {error}", err=True)
