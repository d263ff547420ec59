"""A model's files say in which form they have its weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from deployments.contract.weights_form import WeightsForm
from deployments.model.settings import ModelSettings
from deployments.model.weights_form import weights_form
from serve_app.router_arguments import DEMO_MODEL
from tests.engine.loading.gguf.by_hand import Q4_0, STRING, entry, gguf, key, text


def form(path: object, **said: object) -> WeightsForm | None:
    return weights_form(ModelSettings(name="m", path=str(path), **said))  # type: ignore[arg-type]


def test_of_safetensors_it_is_the_dtype_of_most_weights(tmp_path: Path) -> None:
    tensors: dict[str, NDArray[Any]] = {"a": np.zeros((6, 8), np.float16)}
    tensors["b"] = np.zeros(16, np.float32)
    save_file(tensors, tmp_path / "model.safetensors")
    config = {"model_type": "llama", "max_position_embeddings": 99}
    (tmp_path / "config.json").write_text(json.dumps(config))
    expected = {"format": "safetensors", "n_weights": 64, "n_bytes": 160}
    expected |= {"family": "llama", "context_length": 99}
    assert form(tmp_path) == WeightsForm(**expected, type="F16", bits=20)  # type: ignore[arg-type]
    quantized = form(tmp_path, quantization="int4")
    assert quantized == WeightsForm(**expected, type="int4", bits=4.5)  # type: ignore[arg-type]
    (tmp_path / "config.json").write_text("[")
    broken = form(tmp_path)
    assert broken is not None
    assert (broken.type, broken.family, broken.context_length) == ("F16", "", 0)


GROUPS = {"group_0": {"weights": {"num_bits": 8}}}


@pytest.mark.parametrize(
    ("options", "tensors", "expected"),
    [
        (
            {"quant_method": "mxfp4"},
            {"up_blocks": ((2, 3, 16), "u1"), "up_scales": ((2, 3), "u1")},
            ("mxfp4", 4.25, 192),
        ),
        (
            {"quant_method": "awq", "bits": 4},
            {"a.qweight": ((64, 2), "i4"), "a.scales": ((1, 16), "f2"), "a.qzeros": ((1, 2), "i4")},
            ("awq", 4.3125, 1024),
        ),
        (
            {"quant_method": "compressed-tensors", "format": "pack-quantized"}
            | {"config_groups": GROUPS},
            {"a.weight_packed": ((16, 8), "i4"), "a.weight_scale": ((16, 1), "f2")},
            ("pack-quantized", 8.5, 512),
        ),
        (
            {"quant_method": "bitsandbytes"},
            {"a.weight": ((16, 8), "i1"), "a.SCB": ((16,), "f4"), "b.weight": ((8,), "f4")},
            ("bitsandbytes", (8 * 128 + 512 + 256) / 136, 136),
        ),
    ],
)
def test_of_quantized_files_it_is_their_method(
    tmp_path: Path,
    options: object,
    tensors: dict[str, tuple[tuple[int, ...], str]],
    expected: tuple[object, ...],
) -> None:
    arrays = {name: np.zeros(shape, dtype) for name, (shape, dtype) in tensors.items()}
    save_file(arrays, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": options}))
    found = form(tmp_path)
    assert found is not None
    assert (found.type, found.bits, found.n_weights) == expected


def test_of_a_gguf_file_it_is_the_mixture(tmp_path: Path) -> None:
    keys = [key("general.architecture", STRING, text("llama"))]
    (tmp_path / "m.gguf").write_bytes(gguf(keys, [entry("a", (64, 2), Q4_0)]))
    assert form(tmp_path / "m.gguf") == WeightsForm(
        format="gguf", type="Q4_0", bits=4.5, n_weights=128, n_bytes=72, family="llama"
    )


def test_the_demo_says_its_form() -> None:
    found = form(DEMO_MODEL)
    assert found is not None
    assert found.format == "safetensors"
    assert found.bits == {"BF16": 16, "F16": 16, "F32": 32}[found.type]


@pytest.mark.parametrize("name", ["none", "none.gguf", "m.gguf", "empty", "owner/name:Q4_0"])
def test_of_other_files_nothing_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "m.gguf").write_bytes(gguf())
    (tmp_path / "empty").mkdir()
    assert form(tmp_path / name if "/" not in name else name) is None
