"""Measures the engine on a GPU, part by part."""

import gc
import json
import tempfile
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from rich.progress import Progress, track
from transformers import (
    AutoModelForCausalLM,
    ContinuousBatchingConfig,
    ContinuousBatchingManager,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
)

from deployments.contract.events import TokenEvent
from deployments.contract.requests import GenerationRequest, SamplingParams
from deployments.engine.core import EngineCore
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import finish_weights
from tests.bench.chunks import chunk_seconds
from tests.bench.device_time import bandwidth, matmul_rate
from tests.bench.engine import adapters_for, decode_step_ms, ratio_with_adapters
from tests.bench.gpu.counts import DTYPE, decode_bytes, prefill_operations, sparse_decode_bytes
from tests.bench.gpu.plans import Plan
from tests.bench.gpu.quantized_models import FORMATS, product_microseconds, quantize_randomly

Told = Callable[[], object]  # that a request has ended
Measure = Callable[[Plan, str, "Report"], None]


@dataclass
class Report:
    """Figures by name, and for the table what they mean; `path` has those that there are so far."""

    path: Path | None = None
    figures: dict[str, float] = field(default_factory=dict)
    rows: list[tuple[str, str, str]] = field(default_factory=list)  # what, measured, wanted

    def add(self, name: str, value: float, what: str, shown: str, wanted: str = "") -> None:
        self.figures[name] = value
        self.rows.append((what, shown, wanted))
        print(f"{what}: {shown}", flush=True)
        if self.path:
            self.path.write_text(json.dumps(self.figures, indent=2) + "\n")


def build(config: PretrainedConfig, device: str) -> PreTrainedModel:
    torch.manual_seed(0)
    with torch.device(device):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=DTYPE)
    return model.eval()


@contextmanager
def engine(
    config: PretrainedConfig,
    plan: Plan,
    device: str,
    n_adapters: int = 0,
    rank: int = 16,
    model: PreTrainedModel | None = None,
) -> Iterator[EngineCore]:
    """An engine that has computed before: kernels are compiled, libraries have chosen. It has a
    `model` of its own, or plain random weights."""
    limits = EngineLimits(max_running=plan.max_running, max_batch_tokens=plan.max_batch_tokens)
    limits = replace(limits, max_loras=n_adapters, max_lora_rank=rank)
    core = EngineCore(LoadedModel(model or build(config, device)), frozenset(), limits)
    try:
        prefill_seconds(core, plan.prefill // 2)
        decode_step_ms(core, 4, 16, 4)
        yield core
    finally:
        core.shutdown()


def release(device: str) -> None:
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def request(prompt_ids: list[int], max_tokens: int) -> GenerationRequest:
    return GenerationRequest(
        request_id=uuid.uuid4().hex,
        prompt_ids=tuple(prompt_ids),
        sampling=SamplingParams(temperature=0),
        max_tokens=max_tokens,
        ignore_eos=True,
    )


def prompts(n: int, length: int, vocab: int) -> list[list[int]]:
    ids: list[list[int]] = torch.randint(0, vocab, (n, length)).tolist()
    return ids


def prefill_seconds(core: EngineCore, tokens: int) -> float:
    """Times a request to its first token, for a prompt of which nothing is cached."""
    return seconds_to_token(core, prompts(1, tokens, core.vocab_size)[0])


def seconds_to_token(core: EngineCore, prompt: list[int]) -> float:
    one = request(prompt, 1)
    start = time.perf_counter()
    for _, event in core.run([one]):
        check(event)
    return time.perf_counter() - start


def check(event: TokenEvent) -> None:
    if event.error is not None:
        raise RuntimeError(f"a request failed: {event.error.message}")


def measure_device(plan: Plan, device: str, report: Report) -> None:
    speed, rate = bandwidth(plan.copied, DTYPE, device), matmul_rate(plan.matrix, DTYPE, device)
    report.add("bytes_a_second", speed, "a copy", f"{speed / 1e12:.2f} TB/s")
    report.add("operations_a_second", rate, "bf16 matmul", f"{rate / 1e12:.0f} TFLOP/s")


def measure_large(plan: Plan, device: str, report: Report) -> None:
    speed, rate = report.figures["bytes_a_second"], report.figures["operations_a_second"]
    wanted = {1: ">= 85 %", 64: ">= 70 %"}
    with engine(plan.large, plan, device) as core:
        for rows, context in track(plan.decodes, "decodes of the large model"):
            seconds = decode_step_ms(core, rows, context, plan.steps) / 1e3
            # The context grows while it is measured.
            read = decode_bytes(plan.large, rows, context + plan.steps // 2)
            share = read / speed / seconds
            what = f"large model, {rows} rows at {context}: share of the bandwidth"
            shown = f"{share:.1%} ({seconds * 1e3:.2f} ms)"
            report.add(f"decode_{rows}_at_{context}", share, what, shown, wanted.get(rows, ""))
        seconds = min(prefill_seconds(core, plan.prefill) for _ in track(range(5), "prompts of it"))
        share = prefill_operations(plan.large, plan.prefill) / seconds / rate
        what = f"large model, prompt of {plan.prefill}: share of the matmul rate"
        report.add("prefill", share, what, f"{share:.1%} ({seconds * 1e3:.0f} ms)", ">= 60 %")
        measure_follow_up(core, plan, device, report)


def measure_follow_up(core: EngineCore, plan: Plan, device: str, report: Report) -> None:
    """A step of a few tokens behind many that are cached, and its attention by itself."""
    cached, new = plan.follow_up
    prefix = prompts(1, cached, core.vocab_size)[0]
    seconds = follow_up_seconds(core, prefix, new)
    read = decode_bytes(plan.large, 1, cached)
    figures = {"follow_up": (seconds, read)}
    if device == "cuda":
        config = plan.large
        heads = config.num_attention_heads, config.num_key_value_heads
        attended = read - decode_bytes(config, 1, 0)
        each = chunk_seconds(cached, new, *heads, config.hidden_size // heads[0])
        figures["follow_up_attention"] = config.num_hidden_layers * each, attended
    for name, (taken, n_bytes) in figures.items():
        share = n_bytes / report.figures["bytes_a_second"] / taken
        what = f"{name.replace('_', ' ')}, {new} tokens at {cached}: share of the bandwidth"
        report.add(name, share, what, f"{share:.1%} ({taken * 1e3:.2f} ms)")


def follow_up_seconds(core: EngineCore, prefix: list[int], new: int) -> float:
    """The shortest of some, from the request to its first token; the first computes the prefix."""
    taken = [seconds_to_token(core, prefix + prompts(1, new, core.vocab_size)[0]) for _ in range(6)]
    return min(taken[1:])


def requests_a_second(plan: Plan, device: str) -> float:
    with engine(plan.small, plan, device) as core:
        asked = [
            request(ids, plan.tokens_out)
            for ids in prompts(plan.requests, plan.tokens_in, core.vocab_size)
        ]
        with Progress() as progress:
            bar = progress.add_task("requests to the engine", total=plan.requests)
            start = time.perf_counter()
            for _, event in core.run(asked):
                check(event)
                if event.finish_reason is not None:
                    progress.advance(bar)
            return plan.requests / (time.perf_counter() - start)


def baseline_requests_a_second(plan: Plan, device: str) -> float:
    """Times the same work in transformers' continuous batching, warm as the engine is."""
    model = build(plan.small, device)
    model.set_attn_implementation("sdpa")
    config = GenerationConfig(
        max_new_tokens=plan.tokens_out, do_sample=False, use_cache=True, eos_token_id=-1
    )
    batching = ContinuousBatchingConfig(**plan.baseline) if plan.baseline else None
    asked = prompts(plan.requests, plan.tokens_in, plan.small.vocab_size)
    with (
        torch.no_grad(),
        Progress() as progress,
        model.continuous_batching_context_manager(
            generation_config=config, continuous_batching_config=batching
        ) as manager,
    ):
        finish(manager, prompts(4, plan.tokens_in, plan.small.vocab_size), lambda: None)
        bar = progress.add_task("requests to transformers", total=plan.requests)
        start = time.perf_counter()
        finish(manager, asked, lambda: progress.advance(bar))
        seconds = time.perf_counter() - start
    return plan.requests / seconds


def finish(manager: ContinuousBatchingManager, asked: list[list[int]], told: Told) -> None:
    """Asks for all at once and waits for the last."""
    manager.add_requests(inputs=asked)
    left = len(asked)
    while left:
        result = manager.get_result(timeout=1)
        if result is None:
            if not manager.is_running():
                raise RuntimeError("continuous batching has ended")
        elif result.is_finished():
            if result.error is not None:
                raise RuntimeError(result.error)
            left -= 1
            told()


def measure_small(plan: Plan, device: str, report: Report) -> None:
    ours = requests_a_second(plan, device)
    load = f"{plan.requests} requests of {plan.tokens_in} in, {plan.tokens_out} out"
    report.add("requests_a_second", ours, f"small model, {load}", f"{ours:.1f} /s", ">= 95 /s")


def measure_adapters(plan: Plan, device: str, report: Report) -> None:
    """Steps whose rows have different adapters, or none, beside steps without any."""
    rows, n, rank = plan.adapters
    for name, config in (("large", plan.large), ("small", plan.small)):
        release(device)
        plain, adapted, ratio = time_adapters(config, plan, device)
        what = f"{name} model, {rows} rows of {n} adapters of rank {rank} and of none, over plain"
        shown = f"{ratio:.2f} ({adapted:.2f} ms, {plain:.2f} without)"
        report.add(f"adapters_{name}", ratio, what, shown, "<= 1.25")


def time_adapters(config: PretrainedConfig, plan: Plan, device: str) -> tuple[float, float, float]:
    rows, n, rank = plan.adapters
    with (
        tempfile.TemporaryDirectory() as folder,
        engine(config, plan, device, n, rank) as core,
    ):
        contents = adapters_for(build(config, "meta"), n, rank, Path(folder))
        return ratio_with_adapters(core, rows, plan.decodes[0][1], plan.steps, contents, 3)


def measure_quantized(plan: Plan, device: str, report: Report) -> None:
    """Steps and a prompt of the large model by formats of its weights, and products alone."""
    config, speed = plan.large, report.figures["bytes_a_second"]
    *few, many = plan.quantized
    context = plan.decodes[0][1]
    for name in FORMATS:
        release(device)
        model = build(config, device)
        weights = quantize_randomly(model, name, device)
        with engine(config, plan, device, model=model) as core:
            for rows in few:
                seconds = decode_step_ms(core, rows, context, plan.steps) / 1e3
                attended = decode_bytes(config, rows, context) - decode_bytes(config, 0, 0)
                floor = (weights + attended) / speed
                what = f"{name}, {rows} rows at {context}: share of the bandwidth"
                shown = f"{floor / seconds:.1%} ({seconds * 1e3:.2f} ms)"
                report.add(f"{name}_{rows}", floor / seconds, what, shown)
            seconds = min(prefill_seconds(core, many) for _ in range(5))
            what = f"{name}, prompt of {many} tokens"
            report.add(f"{name}_prompt", seconds, what, f"{seconds * 1e3:.1f} ms")
        del model
    sizes = 2 * config.intermediate_size, config.hidden_size
    for name, kinds in {"bf16": (None,), **FORMATS}.items():
        release(device)
        for rows in plan.quantized:
            taken = product_microseconds(kinds[0], rows, sizes, device)
            what = f"{name}, a product of {sizes[0]} x {sizes[1]} for {rows} rows"
            report.add(f"{name}_product_{rows}", taken, what, f"{taken:.1f} us")


def measure_experts(plan: Plan, device: str, report: Report) -> None:
    """Steps and a prompt of a model with experts."""
    config, speed = plan.sparse, report.figures["bytes_a_second"]
    wanted = {1: "<= 2.9 ms", 8: "<= 9.4 ms", 64: "<= 20.7 ms"}
    model = build(config, device)
    finish_weights(model, device)
    with engine(config, plan, device, model=model) as core:
        for rows, context in plan.sparse_decodes:
            seconds = decode_step_ms(core, rows, context, plan.steps) / 1e3
            share = sparse_decode_bytes(config, rows, context + plan.steps // 2) / speed / seconds
            what = f"model with experts, {rows} rows at {context}: share of the bandwidth"
            shown = f"{share:.1%} ({seconds * 1e3:.2f} ms)"
            report.add(f"experts_{rows}", share, what, shown, wanted.get(rows, ""))
        seconds = min(prefill_seconds(core, plan.sparse_prefill) for _ in range(5))
        what = f"model with experts, prompt of {plan.sparse_prefill} tokens"
        report.add("experts_prompt", seconds, what, f"{seconds * 1e3:.1f} ms", "<= 45 ms")


def measure_baseline(plan: Plan, device: str, report: Report) -> None:
    theirs = baseline_requests_a_second(plan, device)
    report.add("baseline", theirs, "the same by transformers", f"{theirs:.1f} /s")
    ratio = report.figures["requests_a_second"] / theirs
    report.add("ratio", ratio, "ours over theirs", f"{ratio:.1f}", ">= 3")


PARTS: dict[str, Measure] = {
    "device": measure_device,
    "large": measure_large,
    "experts": measure_experts,
    "quantized": measure_quantized,
    "small": measure_small,
    "adapters": measure_adapters,
    "baseline": measure_baseline,
}


def measure(plan: Plan, device: str, report: Report, parts: Sequence[str] = tuple(PARTS)) -> bool:
    """Whether all parts came to their end; what fails in one is told, and the others follow."""
    succeeded = True
    for part in parts:
        release(device)  # the part before held its engine until now
        try:
            PARTS[part](plan, device, report)
        except Exception:
            traceback.print_exc()
            succeeded = False
    return succeeded
