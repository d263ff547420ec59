"""A broken or hostile GGUF file ends in GGUFError, which names the file and the place, and in
neither a crash nor memory out of proportion to it."""

import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from deployments.engine.loading.gguf.block_types import BLOCK_TYPES
from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.reader import GGUF, read_gguf
from deployments.engine.loading.gguf.stored_tensor import dequantize
from deployments.engine.loading.gguf.tensors import GGUFTensor
from tests.effort import tries
from tests.engine.loading.gguf.by_hand import (
    ARRAY,
    BOOL,
    F32,
    Q4_0,
    Q8_0,
    STRING,
    U8,
    alignment,
    array,
    entry,
    gguf,
    key,
    text,
    u32,
    u64,
)

HUGE = 1 << 62
MAX_PEAK_BYTES = 1 << 20  # of what is read of a file of some kilobytes


def nested(depth: int) -> bytes:
    return array(ARRAY, 1) * depth + array(U8, 1, b"\1")


BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is no GGUF file"),
    "short": (b"GGUF\3\0\0\0", "it is no GGUF file"),
    "other": (gguf(magic=b"GGML"), "it is no GGUF file"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "a big-endian GGUF file"),
    "version 1": (gguf(version=1), "version 1 of GGUF is not supported"),
    "version 4": (gguf(version=4), "version 4 of GGUF is not supported"),
    "many keys": (gguf(n_keys=HUGE), "key '': it is there twice"),  # of the zeros behind
    "many keys, cut": (gguf(n_keys=HUGE, data=b"", aligned_to=1), "key 0: it goes past the end"),
    "many tensors": (
        gguf(n_tensors=HUGE, data=b"", aligned_to=1),
        "tensor 0: it goes past the end",
    ),
    "key past the end": (gguf([u64(HUGE) + b"name"]), "key 0: it goes past the end"),
    "key of 2**64": (gguf([u64(2**64 - 1) + b"name"]), "key 0: it goes past the end"),
    "key not in UTF-8": (gguf([key(b"\xff", BOOL, b"\1")]), "key 0: it has a string that is not"),
    "key twice": (gguf([key("a", BOOL, b"\1")] * 2), "key 'a': it is there twice"),
    "long key": (gguf([key("k" * 999, 99, b"")]), f"key '{'k' * 80}': there is no type 99"),
    "type of value": (gguf([key("a", 13, b"")]), "key 'a': there is no type 13 of values"),
    "negative type": (gguf([key("a", 2**32 - 1, b"")]), "key 'a': there is no type -1 of values"),
    "type of items": (gguf([key("a", ARRAY, array(13, 1))]), "key 'a': there is no type 13"),
    "cut number": (gguf([key("a", 10, b"\1")], data=b"", aligned_to=1), "key 'a': it goes past"),
    "string": (gguf([key("a", STRING, u64(HUGE))]), "key 'a': it goes past the end"),
    "string not in UTF-8": (gguf([key("a", STRING, text(b"a\xc0"))]), "key 'a': it has a string"),
    "many numbers": (gguf([key("a", ARRAY, array(12, HUGE))]), "key 'a': it goes past the end"),
    "many bools": (gguf([key("a", ARRAY, array(BOOL, HUGE))]), "key 'a': it goes past the end"),
    "many strings": (gguf([key("a", ARRAY, array(STRING, HUGE))]), "key 'a': it goes past the"),
    "many arrays": (gguf([key("a", ARRAY, array(ARRAY, HUGE))]), "key 'a': it goes past the end"),
    "nesting bomb": (gguf([key("a", ARRAY, nested(10_000))]), "key 'a': more than 4 arrays are"),
    "item not in UTF-8": (
        gguf([key("a", ARRAY, array(STRING, 2, text("b") + text(b"\xff")))]),
        "key 'a': it has a string that is not in UTF-8",
    ),
    "alignment 0": (gguf([alignment(0)]), "key 'general.alignment': it is no power of two"),
    "alignment 24": (gguf([alignment(24)]), "key 'general.alignment': it is no power of two"),
    "alignment of text": (
        gguf([key("general.alignment", STRING, text("32"))]),
        "key 'general.alignment': it is no power of two",
    ),
    "alignment -32": (
        gguf([key("general.alignment", 5, struct.pack("<i", -32))]),
        "key 'general.alignment': it is no power of two",
    ),
    "alignment past the end": (gguf([alignment(1 << 31)], [entry("t")]), "tensor 't': it ends at"),
    "name past the end": (gguf((), [u64(HUGE) + b"t"]), "tensor 0: it goes past the end"),
    "name not in UTF-8": (gguf((), [entry(b"\xfe")]), "tensor 0: it has a string that is not"),
    "tensor twice": (gguf((), [entry("t")] * 2), "tensor 't': it is there twice"),
    "dimensions": (gguf((), [entry("t", [1] * 5)]), "tensor 't': it has 5 dimensions"),
    "many dimensions": (
        gguf((), [text("t") + u32(2**32 - 1)]),
        "tensor 't': it has 4294967295 dimensions",
    ),
    "no elements": (gguf((), [entry("t", [4, 0])]), "tensor 't': its shape (0, 4) has no elements"),
    "no blocks": (gguf((), [entry("t", [48], Q8_0)]), "tensor 't': its rows of 48 weights are no"),
    "blocks over rows": (
        gguf((), [entry("t", [16, 2], Q4_0)]),
        "tensor 't': its rows of 16 weights are no whole blocks of Q4_0, which have 32",
    ),
    "one weight of a block": (
        gguf((), [entry("t", [], Q4_0)]),
        "tensor 't': its rows of 1 weights",
    ),
    "overflow": (gguf((), [entry("t", [1 << 32] * 4)]), "tensor 't': it ends at byte"),
    "overflow to nothing": (
        gguf((), [entry("t", [1 << 33, 1 << 31], F32)]),  # 2**66 bytes are none in 64 bits
        "tensor 't': it ends at byte",
    ),
    "size of 2**64": (gguf((), [entry("t", [2**64 - 1])]), "tensor 't': it ends at byte"),
    "past the end": (gguf((), [entry("t", [9], offset=992)]), "tensor 't': it ends at byte 1"),
    "offset past the end": (gguf((), [entry("t", offset=1 << 63)]), "tensor 't': it ends at byte"),
    "offset of an unknown type": (
        gguf((), [entry("t", [1], 99, 1 << 63)]),
        "tensor 't': it ends at byte",
    ),
    "offset": (gguf((), [entry("t", offset=33)]), "tensor 't': its offset 33 is no multiple of 32"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_and_the_error_says_where(name: str, tmp_path: Path) -> None:
    data, reason = BROKEN[name]
    path = tmp_path / "broken.gguf"
    path.write_bytes(data)
    with bounded_memory(), pytest.raises(GGUFError) as error:
        read_gguf(path)
    assert str(error.value).startswith(f"{path}: ")
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("type_id", "name"),
    [(16, "IQ2_XXS"), (18, "IQ3_XXS"), (19, "IQ1_S"), (29, "IQ1_M"), (34, "TQ1_0"), (4, "4")],
)
def test_a_tensor_of_another_type_is_refused_where_it_is_read(
    type_id: int, name: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf((), [entry("odd", [256], type_id), entry("even", [256])]))
    tensors = read_gguf(path).tensors
    assert not dequantize(tensors["even"]).any()
    for read in (GGUFTensor.rows, dequantize):
        with pytest.raises(GGUFError) as error:
            read(tensors["odd"])
        assert f"{path}: tensor 'odd': its type" in str(error.value)
        assert name in str(error.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nothing.gguf"):
        with pytest.raises(GGUFError, match="there is no such file"):
            read_gguf(path)


def test_a_file_that_became_shorter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf((), [entry("t")]))
    tensor = read_gguf(path).tensors["t"]
    path.write_bytes(gguf((), [entry("t")])[:-1])
    with pytest.raises(GGUFError, match="shorter"):
        tensor.rows()


def test_a_header_has_a_size_that_it_must_not_exceed(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf([key("a", ARRAY, array(U8, 1 << 36))]))
    with path.open("r+b") as file:
        file.truncate(1 << 37)  # a hole, which takes no room on the disk
    with bounded_memory(), pytest.raises(GGUFError, match="key 'a': the header has more than"):
        read_gguf(path)


def some_file() -> bytes:
    """A small file with each type of values, whose last byte is of a tensor."""
    numbers = [key(f"n{kind}", kind, bytes([0] * 7 + [1])[-width:]) for kind, width in WIDTHS]
    arrays = [key(f"a{kind}", ARRAY, array(kind, 2, bytes(2 * width))) for kind, width in WIDTHS]
    strings = array(STRING, 3, text("one") + text("") + text("zwei €"))
    lists = array(ARRAY, 2, array(STRING, 1, text("x")) + array(U8, 3, b"abc"))
    others = [key("s", STRING, text("text")), key("ss", ARRAY, strings), key("aa", ARRAY, lists)]
    entries = [
        entry("f32", [8, 2]),
        entry("q4_0", [64, 1, 2], Q4_0, 64),
        entry("iq2", [256], 16, 160),
        entry("q8_0", [32, 2], Q8_0, 160),
    ]
    data = bytes(range(228))
    return gguf([alignment(32), *numbers, *arrays, *others], entries, data)


WIDTHS = [
    *((0, 1), (1, 1), (2, 2), (3, 2), (4, 4), (5, 4), (6, 4), (BOOL, 1)),
    *((10, 8), (11, 8), (12, 8)),
]
FILE = some_file()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gguf") / "model.gguf"


def test_a_file_that_is_cut_anywhere_is_refused(path: Path) -> None:
    path.write_bytes(FILE)
    assert len(read_whole(read_gguf(path))) == 3
    for length in range(0, len(FILE), tries(3, 1)):
        path.write_bytes(FILE[:length])
        with pytest.raises(GGUFError, match=str(path)):
            read_gguf(path)


@given(
    changes=st.lists(
        st.tuples(
            st.integers(0, len(FILE) - 1),
            st.sampled_from([0, 1, 9, 0x7F, 0x80, 0xFF]) | st.integers(0, 255),
        ),
        min_size=1,
        max_size=4,
    ),
    cut=st.integers(0, 64),
)
def test_a_file_with_changed_bytes_is_read_or_refused(
    path: Path, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(FILE[: len(FILE) - cut])
    for at, byte in changes:
        if at < len(data):
            data[at] = byte
    assert_read_or_refused(path, bytes(data))


@pytest.mark.parametrize("byte", [0x00, 0x09, 0x7F, 0xFF])
def test_a_file_with_any_byte_changed_is_read_or_refused(path: Path, byte: int) -> None:
    for at in range(0, len(FILE), tries(5, 1)):
        assert_read_or_refused(path, FILE[:at] + bytes([byte]) + FILE[at + 1 :])


def assert_read_or_refused(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    with bounded_memory():
        message = refusal(path)
    assert message is None or message.startswith(str(path))


def refusal(path: Path) -> str | None:
    try:
        read_whole(read_gguf(path))
    except GGUFError as error:
        return str(error)
    return None


def read_whole(found: GGUF) -> list[NDArray[np.float32]]:
    """The weights of all tensors whose type is known."""
    tensors = found.tensors.values()
    weights = [dequantize(tensor).numpy() for tensor in tensors if tensor.type_id in BLOCK_TYPES]
    assert all(part.dtype == np.float32 and part.size for part in weights)
    return weights


@contextmanager
def bounded_memory() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MAX_PEAK_BYTES
    finally:
        tracemalloc.stop()
