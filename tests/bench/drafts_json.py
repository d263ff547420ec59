"""Counts the tokens of a step with drafts under a JSON schema, and the steps launched ahead.

    python -m tests.bench.drafts_json [--draft-tokens 8] [--objects 8] [--prompts 4]

The demo's model says an array of objects that all have the same keys. Nothing here depends on the
machine but rounding.
"""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from rich.console import Console
from rich.table import Table

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.engine import InferenceEngine
from deployments.engine.limits import ON_CPU, EngineLimits
from deployments.engine.pending_step import PendingStep
from deployments.engine.tasks.batch import Batch
from deployments.text.grammar.grammar import from_json_schema
from serve_app.router_arguments import DEMO_MODEL

STEPS = 100
ROWS = 8
QUESTIONS = (
    "List some members of a club as JSON.",
    "Which animals do you know? Answer in JSON.",
    "Make up a few people who are older than twenty.",
    "Write a table of capitals as JSON, one object each.",
)


def objects(n: int) -> str:
    """The grammar of `n` objects whose keys are the same, and their values free."""
    properties = {
        "name": {"type": "string", "maxLength": 12},
        "description": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "is_member": {"type": "boolean"},
    }
    one = {"type": "object", "properties": properties, "required": [*properties]}
    items = {**one, "additionalProperties": False}
    return from_json_schema({"type": "array", "items": items, "minItems": n, "maxItems": n}, "-")


@contextmanager
def engine(**changes: int | bool) -> Iterator[InferenceEngine]:
    limits: EngineLimits = replace(ON_CPU, **changes)  # type: ignore[arg-type]
    with InferenceEngine(str(DEMO_MODEL), dtype=torch.float32, limits=limits) as running:
        yield running


def requests(
    running: InferenceEngine, questions: Sequence[str], n_objects: int, sampling: SamplingParams
) -> list[GenerationRequest]:
    grammar = objects(n_objects)
    return [
        replace(
            running.request(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"),
            sampling=replace(sampling, seed=i),
            grammar=grammar,
            max_tokens=800,
        )
        for i, question in enumerate(questions)
    ]


def tokens_a_step(arguments: argparse.Namespace, sampling: SamplingParams) -> tuple[float, float]:
    """Tokens a step and row, and the part of the drafted tokens that were right."""
    questions = QUESTIONS[: arguments.prompts]
    told: list[list[int]] = []
    for draft_tokens in (0, arguments.draft_tokens):
        with engine(draft_tokens=draft_tokens) as running:
            asked = requests(running, questions, arguments.objects, sampling)
            events = [event for request in asked for _, event in running.core.run([request])]
            told.append([token_id for event in events for token_id in event.token_ids])
            stats = running.core.stats()
    assert told[0] == told[1], "drafts have changed an answer"
    n_drawn, n_right = stats.tokens_generated, stats.accepted_tokens
    return n_drawn / (n_drawn - n_right), n_right / max(stats.drafted_tokens, 1)


def launched_ahead() -> int:
    """Counts the steps launched ahead, of `STEPS` steps of `ROWS` rows, one row with a grammar."""
    with engine(async_scheduling=True) as running:
        runner = running.core._scheduler._runner
        launch_next, n_ahead = runner.launch_next, 0

        def count(step: PendingStep, batch: Batch) -> PendingStep:
            nonlocal n_ahead
            n_ahead += 1
            return launch_next(step, batch)

        runner.launch_next = count  # type: ignore[method-assign]
        asked = requests(running, [QUESTIONS[0]] * ROWS, 99, SamplingParams(temperature=0))
        asked = [replace(request, max_tokens=STEPS, ignore_eos=True) for request in asked]
        free = [replace(request, grammar="") for request in asked[1:]]
        for _ in running.core.run([asked[0], *free]):
            pass
    return n_ahead


def main(arguments: argparse.Namespace) -> None:
    table = Table(title=f"{arguments.draft_tokens} tokens drafted, {arguments.objects} objects")
    for column in ("temperature", "tokens a step", "right drafts"):
        table.add_column(column, justify="right")
    for temperature in (0.0, 0.3, 0.8):
        n, right = tokens_a_step(arguments, SamplingParams(temperature=temperature))
        table.add_row(f"{temperature}", f"{n:.2f}", f"{right:.0%}")
    console = Console(width=100)
    console.print(table)
    console.print(f"{launched_ahead()} of {STEPS} steps of {ROWS} rows, one with a grammar, ahead")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--draft-tokens", type=int, default=8)
    parser.add_argument("--objects", type=int, default=8)
    parser.add_argument("--prompts", type=int, default=len(QUESTIONS))
    main(parser.parse_args())
