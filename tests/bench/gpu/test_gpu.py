"""The benchmark of a GPU runs where there is none, in small."""

import json
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import pytest

from tests.bench.gpu.measures import Report, measure
from tests.bench.gpu.plans import PLANS
from tests.bench.gpu.quantized_models import FORMATS

FIGURES = {
    "bytes_a_second", "operations_a_second", "decode_1_at_16", "decode_4_at_32", "prefill",
    "follow_up", "requests_a_second", "adapters_large", "adapters_small", "baseline", "ratio",
    "experts_1", "experts_4", "experts_prompt",
}  # fmt: skip
FIGURES |= {f"{name}_{figure}" for name in FORMATS for figure in (1, 4, "prompt")}
FIGURES |= {f"{name}_product_{rows}" for name in ("bf16", *FORMATS) for rows in (1, 4, 32)}


@pytest.mark.exhaustive  # it takes as long as forty other tests
def test_the_gpu_benchmark_measures_all_it_names_on_a_cpu(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.bench.gpu", "--shape", "tiny", "--device", "cpu"]
    subprocess.run([*command, "--json", str(path)], check=True, capture_output=True, timeout=240)
    figures = json.loads(path.read_text())
    assert figures.keys() == FIGURES
    assert all(value > 0 for value in figures.values())
    ratio = figures["requests_a_second"] / figures["baseline"]
    assert figures["ratio"] == pytest.approx(ratio)


@pytest.mark.exhaustive  # it starts the whole benchmark once more
def test_a_part_that_fails_takes_no_other_with_it(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    short = deepcopy(PLANS["tiny"].large)
    short.max_position_embeddings = 16  # its prompts are refused
    assert not measure(replace(PLANS["tiny"], large=short), "cpu", Report(path))
    of_large = "decode", "prefill", "follow_up", "adapters", *FORMATS, "bf16"
    ran = {name for name in FIGURES if not name.startswith(of_large)}
    assert json.loads(path.read_text()).keys() == ran
