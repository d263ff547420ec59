"""The guide says what computes each storage format on each device, and what is refused."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
import yaml
from transformers import LlamaConfig
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.quantized_linear import packed_linear
from deployments.engine.kernels.cpu.pack_format import format_of
from deployments.engine.kernels.cpu.simd import HAS_F16C
from deployments.engine.loading.checks import check_supported
from deployments.engine.loading.formats.methods import INSTEAD, METHODS
from deployments.engine.loading.gguf.block_types import BLOCK_TYPES
from deployments.engine.loading.gguf.unpacking import UNPACK
from deployments.engine.loading.quantization import ROUND
from deployments.engine.parallel.sharding import check_shardable
from deployments.engine.quantized.rounding import RoundedMatrix
from deployments.engine.quantized.stored_weight import StoredWeight
from serve_app.guides.tables import FOLDER
from tests.engine.kernels.gpu.interpreter import needs_triton
from tests.engine.loading.formats.checkpoints import gpt_oss
from tests.engine.loading.formats.rows import ALL_WRITERS, OF_EXPERTS, ROWS
from tests.engine.loading.formats.test_weights import moved, read, written
from tests.engine.quantized.made import MadeMatrix
from tests.pages import table

GUIDE = FOLDER / "quantized.md"
KERNELS, DEQUANTIZED = "our kernels", "dequantized"
SHAPE = (64, 256)


def of_gguf() -> Iterator[StoredWeight]:
    sizes = {kind.name: (kind.n_weights, kind.n_bytes) for kind in BLOCK_TYPES.values()}
    for name, unpack in UNPACK.items():
        n_weights, n_bytes = sizes[name]
        blocks = torch.zeros(SHAPE[0], SHAPE[1] // n_weights, n_bytes, dtype=torch.uint8)
        yield StoredWeight.of(MadeMatrix(unpack(blocks)), SHAPE, torch.float32)


def rounded() -> Iterator[StoredWeight]:
    for name, round_rows in ROUND.items():
        matrix = RoundedMatrix(name, torch.randn(SHAPE), round_rows)
        yield StoredWeight.of(matrix, SHAPE, torch.float32)


def of_files(row: str) -> Iterator[StoredWeight]:
    for name in ROWS[row]:
        writer = ALL_WRITERS[name]
        if row in OF_EXPERTS:
            experts = read(writer, written(writer, 2, *SHAPE[::-1]))
            yield moved(experts.mT).matrix(0)
        else:
            yield read(writer, written(writer, *SHAPE))


OTHERS: Mapping[str, Callable[[], Iterator[StoredWeight]]] = {
    "GGUF, all [types](gguf.md#types-of-weights)": of_gguf,
    "`quantization`: `int8`, `int4`, `fp8`": rounded,
}
CELLS = {row: cells for row, *cells in table(GUIDE, "What computes")}
REFUSED = [row[0] for row in table(GUIDE, "What is refused")]


def weights_of(row: str) -> list[StoredWeight]:
    """Whole weights of a row, and a rank's shares of them."""
    weights = [*(OTHERS[row]() if row in OTHERS else of_files(row))]
    return [*weights, *(moved(weight[:, : SHAPE[1] // 2]) for weight in weights)]


def test_each_format_has_a_row() -> None:
    assert [*CELLS] == [*ROWS, *OTHERS]
    names = [name for row in ROWS.values() for name in row]
    assert sorted(names) == sorted(ALL_WRITERS)


def said(*are_our_kernels: bool) -> list[str]:
    return [KERNELS if is_ours else DEQUANTIZED for is_ours in are_our_kernels]


@pytest.mark.skipif(not HAS_F16C, reason="our kernels do not run here")
@pytest.mark.parametrize("row", CELLS)
def test_what_computes_on_a_cpu(row: str) -> None:
    weights = weights_of(row)
    bfloat16 = all(format_of(weight.read(0, 1).layout) is not None for weight in weights)
    others = any(
        packed_linear(moved(weight.to(dtype)), None) is not None
        for weight in weights
        for dtype in (torch.float16, torch.float32)
    )
    assert CELLS[row][:2] == said(bfloat16, others)


@needs_triton
@pytest.mark.parametrize("row", CELLS)
def test_what_computes_on_a_gpu(row: str) -> None:
    from deployments.engine.forward.products.slab_matrix import SlabMatrix

    halves, float32 = (
        all(
            SlabMatrix.can_hold(moved(weight.to(dtype)))
            for weight in weights_of(row)
            for dtype in dtypes
        )
        for dtypes in ((torch.bfloat16, torch.float16), (torch.float32,))
    )
    assert CELLS[row][2:4] == said(halves, float32)


def test_ranks_share_all_but_what_has_no_plan() -> None:
    """Tests of models that are served have all others by ranks."""
    assert {row for row, cells in CELLS.items() if cells[4] != "yes"} == {*OF_EXPERTS}
    with pytest.raises(UnsupportedModelError, match="no tensor-parallel plan"):
        check_shardable(gpt_oss(), 2)


def options_of(row: str) -> Iterator[dict[str, Any]]:
    """The options that a row names: a key with several values has them in turn."""
    values: dict[str, list[Any]] = {}
    key = ""
    for text in row.split("`")[1::2]:
        name, mark, value = text.partition(": ")
        key = name if mark else key
        values.setdefault(key, []).append(yaml.safe_load(value if mark else text))
    *common, last = values
    for value in values[last]:
        yield {**{key: values[key][0] for key in common}, last: value}


@pytest.mark.parametrize("row", [row for row in REFUSED if row.startswith("`quant_method: ")])
def test_what_is_refused_is_refused_by_its_name(row: str) -> None:
    for options in options_of(row):
        value = [*options.values()][-1]
        name = value.get("format", "transform_config") if isinstance(value, dict) else value
        with pytest.raises(UnsupportedModelError) as error:
            check_supported(LlamaConfig(quantization_config=options))
        assert str(name).lower() in str(error.value)
        assert INSTEAD in str(error.value)


def test_each_method_of_transformers_is_read_or_has_a_row_that_says_what_to_use() -> None:
    refused = {
        options["quant_method"]
        for row in REFUSED
        if row.startswith("`quant_method: ")
        for options in options_of(row)
    }
    known = {name.removesuffix("_4bit").removesuffix("_8bit") for name in AUTO_QUANTIZER_MAPPING}
    assert known - METHODS.keys() - {"gguf"} <= refused
