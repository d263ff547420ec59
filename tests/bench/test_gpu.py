"""The benchmark of a GPU runs where there is none, in small."""

import json
import subprocess
import sys
from pathlib import Path

FIGURES = {
    "bytes_a_second", "operations_a_second", "decode_1_at_16", "decode_4_at_32", "prefill",
    "requests_a_second", "baseline", "ratio",
}  # fmt: skip


def test_the_gpu_benchmark_measures_all_it_names_on_a_cpu(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    command = [sys.executable, "-m", "tests.bench.gpu", "--shape", "tiny", "--device", "cpu"]
    subprocess.run([*command, "--json", str(path)], check=True, capture_output=True, timeout=240)
    figures = json.loads(path.read_text())
    assert figures.keys() == FIGURES
    assert all(value > 0 for value in figures.values())
