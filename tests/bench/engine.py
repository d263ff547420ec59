"""Times the engine's decode step beside its floor: bytes of weights that it reads over measured
memory bandwidth.

    python -m tests.bench.engine [--model PATH_OR_ID] [--shape demo|135m|1b|moe] [--rows 1 8 32]
        [--prompts 128 2048] [--adapters 8]

With adapters it also times steps whose rows have one of them, or none, in turns with steps without.
Without a model it builds random weights of a shape: what they say does not matter to their speed.
"""

import argparse
import itertools
import statistics
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.core import EngineCore
from deployments.engine.forward.products.experts import are_replaceable
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import default_dtype, finish_weights, load_model
from deployments.engine.loading.quantization import quantize
from deployments.engine.threads import one_thread
from kv.content import PLAIN, Content
from tests.adapters import make_adapter
from tests.bench.shapes import QWEN3_MOE_1B, SHAPE_135M

SHAPES = {
    "demo": LlamaConfig(
        vocab_size=4096,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        tie_word_embeddings=True,
        max_position_embeddings=2048,
    ),
    "135m": SHAPE_135M,
    "1b": LlamaConfig(  # of Llama 3.2 1B
        vocab_size=128256,
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
    ),
    "moe": QWEN3_MOE_1B,
}


def memory_bandwidth() -> float:
    """Bytes a second of reading a block far larger than the caches; the best of several."""
    block = torch.ones(1 << 28, dtype=torch.float32)  # 1 GiB
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        block.sum()
        best = min(best, time.perf_counter() - start)
    return block.nbytes / best


def decode_step_ms(
    core: EngineCore,
    rows: int,
    context: int,
    steps: int,
    contents: Sequence[Content] = (PLAIN,),
) -> float:
    """Median milliseconds between tokens of `rows` sequences that run together. Their contents
    alternate."""
    return statistics.median(token_gaps_ms(core, rows, context, steps, contents))


def token_gaps_ms(
    core: EngineCore,
    rows: int,
    context: int,
    steps: int,
    contents: Sequence[Content] = (PLAIN,),
) -> list[float]:
    """Milliseconds between the tokens of one of `rows` sequences, while all of them run."""
    with one_thread():
        prompts = torch.randint(0, core.vocab_size, (rows, context)).tolist()
    requests = [
        GenerationRequest(
            request_id=uuid.uuid4().hex,
            prompt_ids=tuple(prompt),
            sampling=SamplingParams(temperature=0),
            max_tokens=steps,
            ignore_eos=True,
            content=contents[row % len(contents)],
        )
        for row, prompt in enumerate(prompts)
    ]
    moments: dict[int, list[float]] = {row: [] for row in range(rows)}
    for row, _ in core.run(requests):
        moments[row].append(time.perf_counter())
    all_running = max(times[0] for times in moments.values())
    together = [time for time in moments[0] if time >= all_running]
    return [(b - a) * 1e3 for a, b in itertools.pairwise(together)]


def adapters_for(model: PreTrainedModel, n: int, rank: int, folder: Path) -> list[Content]:
    """Random ones for all layers that take one, and none."""
    made = [make_adapter(folder / str(i), model, i, rank=rank) for i in range(n)]
    return [*(Content(adapters=(adapter,)) for adapter in made), PLAIN]


def ratio_with_adapters(
    core: EngineCore, rows: int, context: int, steps: int, contents: Sequence[Content], times: int
) -> tuple[float, float, float]:
    """Median milliseconds of steps without adapters and with, and the median of their ratios."""
    pairs = []
    for _ in range(times + 1):  # the first one, which loads them, is not counted
        plain, adapted = (
            decode_step_ms(core, rows, context, steps, chosen) for chosen in ((PLAIN,), contents)
        )
        pairs.append((plain, adapted))
    plains, adapteds = zip(*pairs[1:], strict=True)
    ratios = [adapted / plain for plain, adapted in pairs[1:]]
    return statistics.median(plains), statistics.median(adapteds), statistics.median(ratios)


def prompt_ms(core: EngineCore, n_tokens: int, times: int) -> float:
    """Median milliseconds from a prompt alone, nothing of it cached, to its first token."""
    taken = []
    for _ in range(times + 1):  # the first one is not counted
        with one_thread():
            prompt = torch.randint(0, core.vocab_size, (n_tokens,)).tolist()
        request = GenerationRequest(
            request_id=uuid.uuid4().hex,
            prompt_ids=tuple(prompt),
            sampling=SamplingParams(temperature=0),
            max_tokens=1,
            ignore_eos=True,
        )
        start = time.perf_counter()
        for _ in core.run([request]):
            pass
        taken.append(time.perf_counter() - start)
    return statistics.median(taken[1:]) * 1e3


def weight_bytes_of(model: PreTrainedModel, rows: int = 1) -> int:
    """Bytes of weights that a step of some rows reads, of a model that is not fused yet. Of experts
    these are as many as rows choose on average, if all are as likely."""
    embeddings = model.get_input_embeddings().weight
    n_bytes: float = bytes_of(model)
    if model.get_output_embeddings().weight is not embeddings:
        n_bytes -= embeddings.nbytes  # of which a step reads rows
    for experts in filter(are_replaceable, model.modules()):
        chosen = model.config.num_experts_per_tok / experts.num_experts
        n_bytes -= bytes_of(experts) * (1 - chosen) ** rows
    return round(n_bytes)


def bytes_of(module: nn.Module) -> int:
    return sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))


def main(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    dtype = getattr(torch, arguments.dtype) if arguments.dtype else None
    model: PreTrainedModel
    if arguments.model:
        model = load_model(arguments.model, dtype=dtype, quantization=arguments.quantization).model
    else:
        config = SHAPES[arguments.shape]
        dtype = dtype or default_dtype("cpu", config)
        with one_thread():
            model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
            quantize(model, arguments.quantization)
            finish_weights(model, "cpu")
    read = {rows: weight_bytes_of(model, rows) for rows in arguments.rows}
    with TemporaryDirectory() as folder, one_thread():
        contents = adapters_for(model, arguments.adapters, arguments.adapter_rank, Path(folder))
        time_all(model, read, contents, arguments)


def time_all(
    model: PreTrainedModel,
    read: Mapping[int, int],
    contents: Sequence[Content],
    arguments: argparse.Namespace,
) -> None:
    limits = EngineLimits(max_loras=arguments.adapters, max_lora_rank=arguments.adapter_rank)
    torch.set_num_threads(arguments.threads)
    core = EngineCore(LoadedModel(model), frozenset(), limits)
    steps = {
        rows: decode_step_ms(core, rows, arguments.context, arguments.steps)
        for rows in track(arguments.rows, "decoding", transient=True)
    }
    prompts = {
        n: prompt_ms(core, n, arguments.times)
        for n in track(arguments.prompts, "prompts", transient=True)
    }
    adapted = {
        rows: ratio_with_adapters(
            core, rows, arguments.context, arguments.steps, contents, arguments.times
        )
        for rows in track(arguments.rows if arguments.adapters else (), "adapters", transient=True)
    }
    core.shutdown()
    bandwidth = memory_bandwidth()
    table = Table(
        title=f"{model.dtype}, {arguments.threads} threads, context {arguments.context}, "
        f"{bandwidth / 1e9:.1f} GB/s"
    )
    for column in ("rows", "MB", "step ms", "floor ms", "step / floor", "tok/s"):
        table.add_column(column, justify="right")
    for rows, step in steps.items():
        floor = read[rows] / bandwidth * 1e3
        figures = (read[rows] / 1e6, step, floor, step / floor, rows / step * 1e3)
        table.add_row(str(rows), *(f"{figure:.2f}" for figure in figures))
    console = Console(width=100)
    console.print(table)
    for n, taken in prompts.items():
        console.print(f"a prompt of {n} tokens: {taken:.1f} ms, {n / taken * 1e3:.0f} tok/s")
    for rows, (plain, with_adapters, ratio) in adapted.items():
        console.print(
            f"{rows} rows of {arguments.adapters} adapters of rank {arguments.adapter_rank} and of "
            f"none: {with_adapters:.2f} ms, {plain:.2f} without, in turns; ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model")
    parser.add_argument("--shape", choices=SHAPES, default="135m")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"))
    parser.add_argument("--quantization", choices=("none", "int8", "int4"), default="none")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prompts", type=int, nargs="*", default=[])
    parser.add_argument("--times", type=int, default=5, help="of each prompt")
    parser.add_argument("--adapters", type=int, default=0)
    parser.add_argument("--adapter-rank", type=int, default=16)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    main(parser.parse_args())
