"""Times an engine with a draft model or a draft head beside the same one without, in turns.

    python -m tests.bench.draft_model demo [--rows 1 8 32] [--rounds 5] [--temperature 0]
    python -m tests.bench.draft_model easy|head [--rows 1 4 8 32]

`demo`: the demo model and its draft, on held-out cases. `easy`: a model of 135 M weights that
counts, and a small one that counts as well, so that every draft is right. `head`: the same with a
draft head, and so far that no n-gram comes again. "by measure" is as it is
served, "always" drafts so many tokens whether or not that pays. With one thread the seconds are the
processor's, so that other work on the machine hardly counts.
"""

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from rich.console import Console
from rich.table import Table

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.core import EngineCore
from deployments.engine.limits import ON_CPU
from deployments.engine.loading.draft_check import Drafting
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import load_model, load_tokenizer
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


def models(name: str) -> tuple[LoadedModel, Drafting]:
    if name == "demo":
        return load_model(str(MODEL)), load_model(str(DRAFT))
    if name == "head":
        model = counting(FAR)
        return LoadedModel(model), knowing_head(model)
    return LoadedModel(counting()), LoadedModel(counting(**SMALL))


def engines(name: str, n_always: int, n_tokens: int) -> Iterator[tuple[str, EngineCore]]:
    yield "plain", EngineCore(models(name)[0], frozenset(), ON_CPU)
    for kind, limits in (
        ("by measure", replace(ON_CPU, draft_tokens=n_tokens)),
        ("always", replace(ON_CPU, draft_tokens=n_always, draft_min=1)),
    ):
        model, draft = models(name)
        yield kind, EngineCore(model, frozenset(), limits, draft=draft)


def tokens_a_second(core: EngineCore, asked: Sequence[GenerationRequest], rows: int) -> float:
    """So many requests at once, one batch of them after the other."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    start, n = clock(), 0
    for first in range(0, len(asked), rows):
        n += sum(len(event.token_ids) for _, event in core.run(asked[first : first + rows]))
    return n / (clock() - start)


def main(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    console = Console(width=120)
    cores = dict(engines(arguments.model, arguments.always, arguments.draft_tokens))
    table = Table(title=f"{arguments.model}, temperature {arguments.temperature}")
    for column in ("rows", "engine", "tok/s", "ratio", "tokens a step and row", "right"):
        table.add_column(column, justify="right")
    for rows in arguments.rows:
        asked = (
            demo_requests(max(16, rows), arguments.temperature)
            if arguments.model == "demo"
            else requests([[i % PERIOD for i in range(64)]] * max(2, rows), arguments.temperature)
        )
        rates: dict[str, list[float]] = {kind: [] for kind in cores}
        for core in cores.values():
            tokens_a_second(core, asked, rows)  # and compiles what it needs
        before = {kind: core.stats() for kind, core in cores.items()}
        for _ in range(arguments.rounds):
            for kind, core in cores.items():
                rates[kind].append(tokens_a_second(core, asked, rows))
        for kind, core in cores.items():
            after = core.stats()
            n = after.tokens_generated - before[kind].tokens_generated
            drafted = after.drafted_tokens - before[kind].drafted_tokens
            right = after.accepted_tokens - before[kind].accepted_tokens
            ratio = statistics.median(
                b / a for a, b in zip(rates["plain"], rates[kind], strict=True)
            )
            table.add_row(
                str(rows),
                kind,
                f"{statistics.median(rates[kind]):.0f}",
                f"{ratio:.2f}",
                f"{n / (n - right):.2f}",
                f"{right / drafted:.0%}" if drafted else "-",
            )
    for core in cores.values():
        core.shutdown()
    console.print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", choices=["demo", "easy", "head"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--draft-tokens", type=int, default=8)
    parser.add_argument("--always", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    main(parser.parse_args())
