"""Times an engine with a draft model or a draft head beside the same one without, in turns.

    python -m tests.bench.draft_model demo [--draft PATH] [--rows 1 8 32] [--temperature 0]
    python -m tests.bench.draft_model easy|head [--rows 1 4 8 32]

`demo`: the demo model and what drafts for it, on held-out cases. `easy`: a model of 135 M weights
that counts, and a small one that counts as well, so that every draft is right. `head`: the same
with a draft head, and so far that no n-gram comes again. "by measure" is as it is served, "always"
drafts so many tokens whether or not that pays. Each engine has a process of its own: teams of
several in one would slow each other down. With one thread the seconds are the processor's, so that
other work on the machine hardly counts.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from multiprocessing import get_context
from multiprocessing.connection import Connection

import torch
from rich.console import Console
from rich.table import Table

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.core import EngineCore
from deployments.engine.limits import ON_CPU, EngineLimits
from deployments.engine.loading.draft_check import Drafting, load_draft
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import load_model, load_tokenizer
from deployments.engine.stats import EngineStats
from serve_app.demo.model_files import DRAFT, MODEL
from serve_app.demo.training.corpus import cases
from serve_app.demo.training.corpus.skills import EVALUATED
from tests.bench.drafts import PERIOD, counting
from tests.heads import knowing_head

N_NEW = 100
FAR = 4096  # tokens, of which a text says fewer
SMALL = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
}


def demo_requests(n: int, temperature: float) -> list[GenerationRequest]:
    tokenizer = load_tokenizer(str(MODEL))
    asked = [case for skill in EVALUATED for case in cases(skill, 1 + n // len(EVALUATED))]
    prompts = [
        tokenizer.apply_chat_template(
            case.messages(),
            tools=case.described_tools(),
            enable_thinking=case.thinking,
            add_generation_prompt=True,
            return_dict=True,
        )["input_ids"]
        for case in asked[:: max(1, len(asked) // n)][:n]
    ]
    return requests(prompts, temperature, frozenset({2}))


def requests(
    prompts: Sequence[Sequence[int]], temperature: float, ends: frozenset[int] = frozenset()
) -> list[GenerationRequest]:
    return [
        GenerationRequest(
            request_id=str(i),
            prompt_ids=tuple(prompt),
            sampling=SamplingParams(temperature=temperature, seed=i),
            max_tokens=N_NEW,
            stop_token_ids=tuple(ends),
        )
        for i, prompt in enumerate(prompts)
    ]


def models(name: str, draft: str) -> tuple[LoadedModel, Drafting]:
    if name == "demo":
        model = load_model(str(MODEL))
        return model, load_draft(draft, model)
    if name == "head":
        counted = counting(FAR)
        return LoadedModel(counted), knowing_head(counted)
    return LoadedModel(counting()), LoadedModel(counting(**SMALL))


def limits_of(arguments: argparse.Namespace) -> dict[str, EngineLimits]:
    """The limits of the engines that draft."""
    found = {"by measure": replace(ON_CPU, draft_tokens=arguments.draft_tokens)}
    for n in arguments.always:
        found[f"always {n}"] = replace(ON_CPU, draft_tokens=n, draft_min=1)
    return found


@dataclass(frozen=True, slots=True)
class Turn:
    """The speed of a run of an engine, and what the engine counts by now."""

    rate: float  # tokens a second
    stats: EngineStats


def serve(connection: Connection, arguments: argparse.Namespace, kind: str) -> None:
    """Runs what is asked for in this process, as an engine of this kind."""
    torch.set_num_threads(arguments.threads)
    model, draft = models(arguments.model, arguments.draft)
    limits = limits_of(arguments).get(kind)
    if limits is None:
        core = EngineCore(model, frozenset(), ON_CPU)
    else:
        core = EngineCore(model, frozenset(), limits, draft=draft)
    while (asked := connection.recv()) is not None:
        connection.send(Turn(tokens_a_second(core, *asked), core.stats()))
    core.shutdown()


def tokens_a_second(core: EngineCore, asked: Sequence[GenerationRequest], rows: int) -> float:
    """So many requests at once, one batch of them after the other."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start, n = clock(), 0
    for first in range(0, len(asked), rows):
        n += sum(len(event.token_ids) for _, event in core.run(asked[first : first + rows]))
    return n / (clock() - start)


def main(arguments: argparse.Namespace) -> None:
    console, context = Console(width=120), get_context("spawn")
    engines = dict[str, Connection]()
    for kind in ("plain", *limits_of(arguments)):
        engines[kind], theirs = context.Pipe()
        context.Process(target=serve, args=(theirs, arguments, kind), daemon=True).start()

    def turn(kind: str, asked: Sequence[GenerationRequest], rows: int) -> Turn:
        engines[kind].send((asked, rows))
        found: Turn = engines[kind].recv()
        return found

    table = Table(title=f"{arguments.model}, temperature {arguments.temperature}")
    for column in (
        "rows",
        "engine",
        "tok/s",
        "ratio",
        "tokens a step and row",
        "right, by position",
    ):
        table.add_column(column, justify="right")
    for rows in arguments.rows:
        asked = (
            demo_requests(max(16, rows), arguments.temperature)
            if arguments.model == "demo"
            else requests([[i % PERIOD for i in range(64)]] * max(2, rows), arguments.temperature)
        )
        # And compiles what it needs.
        before = {kind: turn(kind, asked, rows).stats for kind in engines}
        turns: dict[str, list[Turn]] = {kind: [] for kind in engines}
        for _ in range(arguments.rounds):
            for kind in engines:
                turns[kind].append(turn(kind, asked, rows))
        plain = [one_turn.rate for one_turn in turns["plain"]]
        for kind, taken in turns.items():
            rates = [one_turn.rate for one_turn in taken]
            ratio = statistics.median(b / a for a, b in zip(plain, rates, strict=True))
            figures = counted_between(before[kind], taken[-1].stats)
            rate = f"{statistics.median(rates):.0f}"
            table.add_row(str(rows), kind, rate, f"{ratio:.2f}", *figures)
    for connection in engines.values():
        connection.send(None)
    console.print(table)


def counted_between(before: EngineStats, after: EngineStats) -> tuple[str, str]:
    """Tokens a step and row, and how many of the drafts' first tokens were right, of the second
    ones, and so on."""
    n = after.tokens_generated - before.tokens_generated
    right = after.accepted_tokens - before.accepted_tokens
    drafts = after.drafts - before.drafts
    counts = zip_longest(after.accepted_by_position, before.accepted_by_position, fillvalue=0)
    shares = [f"{(now - then) / drafts:.0%}" for now, then in counts] if drafts else ["-"]
    return f"{n / (n - right):.2f}", " ".join(shares)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", choices=["demo", "easy", "head"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--draft-tokens", type=int, default=8)
    parser.add_argument("--always", type=int, nargs="*", default=[3])
    parser.add_argument("--draft", default=str(DRAFT), help="a draft model or a draft head")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    main(parser.parse_args())
