"""Times an engine that drafts beside one that does not, where every draft is right.

    python -m tests.bench.drafts [--rows 1 4 8 16] [--draft-tokens 8] [--rounds 5]

The model has the shape of 135 M weights, and they count: what drafting wins at most.
"""

import argparse
import statistics
import time

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.core import EngineCore
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import default_dtype
from deployments.engine.threads import one_thread
from tests.bench.shapes import SHAPE_135M

N_NEW = 128
PERIOD = 64


def counting(period: int = PERIOD, **sizes: int) -> PreTrainedModel:
    """After each token it says the next one, round and round; its layers add nothing to that."""
    with one_thread():
        config = LlamaConfig(**{**SHAPE_135M.to_dict(), "tie_word_embeddings": False, **sizes})
        model: PreTrainedModel = AutoModelForCausalLM.from_config(
            config, dtype=default_dtype("cpu", config)
        )
        for name, weight in model.named_parameters():
            if "o_proj" in name or "down_proj" in name:
                weight.data.zero_()
        ids = torch.arange(config.vocab_size)
        following = ids - ids % period + (ids + 1) % period
        said, heard = model.get_output_embeddings(), model.get_input_embeddings()
        said.weight.data[following] = heard.weight.data
    return model.eval()


def generate(core: EngineCore, prompt: tuple[int, ...], rows: int, n: int) -> tuple[int, ...]:
    """Generates `n` tokens behind the prompt in each of `rows` rows, and returns those of row 0."""
    requests = [
        GenerationRequest(
            request_id=str(row),
            prompt_ids=prompt,
            sampling=SamplingParams(temperature=0),
            max_tokens=n,
            ignore_eos=True,
        )
        for row in range(rows)
    ]
    events = core.run(requests)
    return tuple(token for row, event in events if row == 0 for token in event.token_ids)


def main(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    plain = EngineCore(LoadedModel(counting()), frozenset(), EngineLimits())
    limits = EngineLimits(draft_tokens=arguments.draft_tokens)
    drafting = EngineCore(LoadedModel(counting()), frozenset(), limits)
    prompt = tuple(token % PERIOD for token in range(2 * PERIOD))
    table = Table(title=f"{arguments.draft_tokens} tokens drafted, {arguments.threads} threads")
    for column in ("rows", "plain tok/s", "drafting tok/s", "ratio", "tokens a step and row"):
        table.add_column(column, justify="right")
    for rows in arguments.rows:
        rates: dict[EngineCore, list[float]] = {plain: [], drafting: []}
        before = drafting.stats()
        for _ in track(range(arguments.rounds), f"{rows} rows", transient=True):
            for core, rate in rates.items():
                start = time.perf_counter()
                generate(core, prompt, rows, N_NEW)
                rate.append(rows * N_NEW / (time.perf_counter() - start))
        ratios = [b / a for a, b in zip(rates[plain], rates[drafting], strict=True)]
        after = drafting.stats()
        right = after.accepted_tokens - before.accepted_tokens
        n_drawn = rows * N_NEW * arguments.rounds
        figures = (
            *(f"{statistics.median(rate):.1f}" for rate in rates.values()),
            f"{statistics.median(ratios):.2f}",
            f"{n_drawn / (n_drawn - right):.2f}",
        )
        table.add_row(str(rows), *figures)
    plain.shutdown()
    drafting.shutdown()
    Console(width=100).print(table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--draft-tokens", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    main(parser.parse_args())
