"""Each storage format is served as the numbers that its weights stand for: alone, in a batch, in
chunks, with an adapter, and by two ranks."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import PretrainedConfig

from deployments.engine.loading.loader import load_model
from tests.adapters import make_adapter
from tests.engine.drive import engine, random_ids, request, roomy
from tests.engine.loading.formats.checkpoints import (
    biased_llama,
    gpt_oss,
    qwen3_moe,
    save_quantized,
)
from tests.engine.loading.formats.rows import ALL_WRITERS, OF_EXPERTS, ROWS
from tests.engine.loading.gguf.test_served import written
from tests.engine.parallel.two_ranks import Follower, start_follower, two_rank_engine
from tests.engine.workload import Workload, check_same

MODELS: dict[str, Callable[[], PretrainedConfig]] = {
    "dense": biased_llama,
    "experts": qwen3_moe,
    "gpt-oss": gpt_oss,
}
QUANTIZED = {"dense": ("_proj", "lm_head"), "experts": ("_proj",), "gpt-oss": ("experts",)}
CASES = [
    *((row, "dense") for row in ROWS if row not in OF_EXPERTS),
    *((row, "experts") for row in ROWS if row not in OF_EXPERTS),
    *((row, "gpt-oss") for row in OF_EXPERTS),
]
# Ranks share experts as they do other weights, but for those that have orders of inputs.
SHARED = {"dense": frozenset(ROWS), "experts": frozenset({"`gptq` with `desc_act`"})}


@pytest.fixture(scope="module")
def follower() -> Iterator[Follower]:
    with start_follower() as process:
        yield process


def plain_weights(model: nn.Module, kind: str) -> list[str]:
    """The matrices that should be quantized, and are not."""
    return [
        name
        for name, weight in model.named_parameters()
        if any(part in name for part in QUANTIZED[kind])
        and weight.dim() > 1
        and not name.endswith("bias")
    ]


@pytest.mark.parametrize(("row", "kind"), CASES)
def test_its_tokens_are_those_of_its_numbers(
    row: str, kind: str, follower: Follower, tmp_path: Path
) -> None:
    writer = ALL_WRITERS[ROWS[row][0]]
    if kind == "dense":
        writer = replace(writer, ends=(*writer.ends, "lm_head.weight"))
    quantized, plain = save_quantized(tmp_path, MODELS[kind](), writer)
    twin = load_model(plain, dtype=torch.float32)
    targets = ("q_proj", "o_proj", "mlp.down_proj")
    adapter = make_adapter(tmp_path / "adapter", twin.model, targets=targets)
    prompts = [random_ids(n, seed=n) for n in (3, 17, 9)]
    asked = [request(f"{n}", ids, max_tokens=6) for n, ids in enumerate(prompts)]
    adapted = request("adapted", prompts[2], max_tokens=6, adapters=[adapter])
    limits = roomy(max_loras=1)
    workload = Workload(requests=[*asked, adapted], model=lambda: twin, limits=limits)

    model = load_model(quantized, dtype=torch.float32)
    assert plain_weights(model.model, kind) == []
    with engine(model=model, limits=roomy(max_loras=1, max_batch_tokens=8)) as running:
        workload.check(running.run(req)[0] for req in workload.requests)
        workload.check(running.run_at_once(*workload.apart()))
    if row in SHARED.get(kind, ()):
        with two_rank_engine(follower, Path(quantized)) as running:
            for found, expected in zip(running.run(*asked), workload.undisturbed, strict=False):
                check_same(found, expected)


@pytest.mark.parametrize("name", ["llama", "experts"])
def test_two_ranks_share_gguf_files(name: str, follower: Follower, tmp_path: Path) -> None:
    file = written(name, tmp_path)
    asked = [request(f"{n}", random_ids(n, n), max_tokens=6) for n in (5, 9)]
    workload = Workload(requests=asked, model=lambda: load_model(str(file), dtype=torch.float32))
    with two_rank_engine(follower, file) as running:
        workload.check_on(running)
