"""A reader gets the metadata and the table of tensors that the package `gguf` writes."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGUFValueType
from hypothesis import given
from hypothesis import strategies as st

from deployments.engine.loading.gguf.reader import read_gguf
from deployments.engine.loading.gguf.stored_tensor import dequantize
from tests.engine.loading.gguf import by_hand

NUMBERS: Mapping[GGUFValueType, st.SearchStrategy[Any]] = {
    **{
        GGUFValueType[f"{sign}INT{bits}"]: st.integers(
            0 if sign else -(1 << bits - 1), (1 << bits if sign else 1 << bits - 1) - 1
        )
        for sign in ("U", "")
        for bits in (8, 16, 32, 64)
    },
    GGUFValueType.FLOAT32: st.floats(width=32, allow_nan=False),
    GGUFValueType.FLOAT64: st.floats(allow_nan=False),
    GGUFValueType.BOOL: st.booleans(),
}
TEXTS = st.text(max_size=20)
DTYPES = {
    GGUFValueType.FLOAT32: "float32",
    GGUFValueType.FLOAT64: "float64",
    GGUFValueType.BOOL: "bool",
}


@st.composite
def entries(draw: st.DrawFn) -> tuple[Any, GGUFValueType, GGUFValueType | None]:
    """A value with its type, and that of its items where it is an array."""
    kind = draw(st.sampled_from([*NUMBERS, GGUFValueType.STRING]))
    values = NUMBERS.get(kind, TEXTS)
    if draw(st.booleans()):
        return draw(st.lists(values, min_size=1, max_size=9)), GGUFValueType.ARRAY, kind
    return draw(values), kind, None


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf") / "model.gguf"


def write(writer: gguf.GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@given(metadata=st.dictionaries(st.text(max_size=20), entries(), max_size=9))
def test_metadata_is_read_as_it_was_written(
    path: Path, metadata: dict[str, tuple[Any, GGUFValueType, GGUFValueType | None]]
) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    for key, (value, kind, of_items) in metadata.items():
        writer.add_key_value(key, value, kind, of_items)
    write(writer)
    found = dict(read_gguf(path).metadata)
    expected = {"general.architecture": ("llama", GGUFValueType.STRING, None), **metadata}
    assert list(found) == list(expected)
    for key, (value, _, of_items) in expected.items():
        if of_items is None or of_items is GGUFValueType.STRING:
            assert found[key] == value
            assert type(found[key]) is type(value)
        else:
            array = found[key]
            assert isinstance(array, np.ndarray)
            assert array.dtype == DTYPES.get(of_items, of_items.name.lower())
            assert array.tolist() == value


def test_arrays_are_within_arrays(path: Path) -> None:
    value = [[["a", "b"], ["c"]], [["", "€"]]]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("texts", value)
    writer.add_array("numbers", [[1, 2], [3]])
    write(writer)
    found = read_gguf(path).metadata
    assert found["texts"] == value
    assert [list(part) for part in found["numbers"]] == [[1, 2], [3]]  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize("kind", [by_hand.U8, by_hand.BOOL, by_hand.STRING, by_hand.ARRAY])
def test_an_array_may_be_empty(kind: int, path: Path) -> None:
    empty = by_hand.key("empty", by_hand.ARRAY, by_hand.array(kind, 0))
    path.write_bytes(by_hand.gguf([empty, by_hand.key("next", by_hand.BOOL, b"\1")]))
    found = read_gguf(path).metadata
    assert len(found["empty"]) == 0  # type: ignore[arg-type]
    assert found["next"] is True


def test_whatever_is_not_0_is_true(path: Path) -> None:
    array = by_hand.array(by_hand.BOOL, 3, b"\0\1\2")
    keys = [by_hand.key("array", by_hand.ARRAY, array), by_hand.key("b", by_hand.BOOL, b"\x80")]
    path.write_bytes(by_hand.gguf(keys))
    found = read_gguf(path).metadata
    assert isinstance(found["array"], np.ndarray)
    assert found["array"].view(np.uint8).tolist() == [0, 1, 1]
    assert found["b"] is True


@pytest.mark.parametrize("version", [2, 3])
def test_both_versions_are_read(version: int, path: Path) -> None:
    data = struct.pack("<4f", 1, 2, 3, 4)
    path.write_bytes(by_hand.gguf((), [by_hand.entry("t")], data, version=version))
    assert dequantize(read_gguf(path).tensors["t"]).tolist() == [[1, 2, 3, 4]]


def test_a_file_may_hold_metadata_alone(path: Path) -> None:
    path.write_bytes(by_hand.gguf([by_hand.key("a", by_hand.U8, b"\7")], data=b"", aligned_to=1))
    found = read_gguf(path)
    assert (dict(found.metadata), dict(found.tensors), found.files) == ({"a": 7}, {}, (path,))


@given(
    shapes=st.lists(st.lists(st.integers(1, 5), min_size=0, max_size=3), min_size=1, max_size=6),
    aligned_to=st.sampled_from([8, 32, 64, 4096]),
)
def test_tensors_are_found_where_they_were_written(
    path: Path, shapes: list[list[int]], aligned_to: int
) -> None:
    generator = np.random.default_rng(0)
    rows = [(*shape, 32) for shape in shapes]
    blocks = [generator.integers(0, 256, (*shape, 34), np.uint8) for shape in shapes]
    floats = [generator.standard_normal(shape).astype(np.float32) for shape in rows]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_custom_alignment(aligned_to)
    for number in range(len(shapes)):
        kind = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(f"packed {number}", blocks[number], raw_dtype=kind)
        writer.add_tensor(f"plain {number}", floats[number])
    write(writer)
    tensors = read_gguf(path).tensors
    assert len(tensors) == 2 * len(shapes)
    for number, shape in enumerate(rows):
        packed, plain = tensors[f"packed {number}"], tensors[f"plain {number}"]
        assert packed.shape == plain.shape == shape
        assert packed.offset % aligned_to == plain.offset % aligned_to == 0
        assert np.array_equal(packed.rows(), blocks[number].reshape(-1, 34))
        assert np.array_equal(dequantize(plain), floats[number].reshape(-1, 32))


def test_opening_reads_no_tensor(tmp_path: Path) -> None:
    """They take more than there is of memory."""
    path, rows = tmp_path / "model.gguf", 1 << 30
    path.write_bytes(by_hand.gguf((), [by_hand.entry("t", [256, rows])], data=b""))
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size + rows * 1024)  # a hole, which takes no room on the disk
    tensor = read_gguf(path).tensors["t"]
    assert (tensor.shape, tensor.n_rows, tensor.row_bytes) == ((rows, 256), rows, 1024)
