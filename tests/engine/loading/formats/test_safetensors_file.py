"""A safetensors file is read where it lies. One that is torn, or not as its header says, is
refused, and the error names the file and the tensor."""

import json
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save, save_file

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.formats.mapped_file import FileSpan, MappedFile
from deployments.engine.loading.formats.safetensors_file import DTYPES, read_safetensors

WRITTEN = save({"a": torch.ones(4, 4), "b": torch.ones(8).bfloat16()}, {"format": "pt"})
START = 8 + struct.unpack("<Q", WRITTEN[:8])[0]
HEADER, DATA = json.loads(WRITTEN[8:START]), WRITTEN[START:]


def file(header: object, data: bytes = DATA, length: int | None = None) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def with_b(**fields: object) -> bytes:
    """The file whose header says something else of tensor b."""
    return file(HEADER | {"b": HEADER["b"] | fields})


BROKEN: dict[str, tuple[bytes, str]] = {
    "torn": (WRITTEN[:-3], f"tensor 'b': it ends at byte {START + 80}, and the file has"),
    "torn in an earlier one": (WRITTEN[: START + 9], f"tensor 'a': it ends at byte {START + 64}"),
    "torn in its header": (WRITTEN[:40], f"its header ends at byte {START}, and the file has 40"),
    "too short": (WRITTEN[:5], "and the file has 5"),
    "empty": (b"", "and the file has 0"),
    "a long header": (file(HEADER, length=1 << 62), "its header ends at byte 46116860184273879"),
    "no JSON": (file(HEADER, length=9), "its header is no JSON"),
    "no object": (file([1]), "its header is no object"),
    "no tensor": (file({"a": 1}), "tensor 'a': its type None is not supported"),
    "more behind it": (WRITTEN + b"x", f"its tensors end at byte {START + 80}, and the file has"),
    "another shape": (with_b(shape=[9]), "tensor 'b': BF16 [9] has 18 bytes, and it has 16"),
    "a huge shape": (with_b(shape=[1 << 62, 9]), "and it has 16"),
    "a negative shape": (with_b(shape=[-4, -2]), "tensor 'b': its shape is [-4, -2]"),
    "an unknown type": (with_b(dtype="Q4"), "tensor 'b': its type 'Q4' is not supported"),
    "beyond the end": (with_b(shape=[68], data_offsets=[64, 200]), "tensor 'b': it ends at byte"),
    "over another": (with_b(data_offsets=[60, 76]), "tensor 'b': it begins at byte"),
    "a hole": (with_b(data_offsets=[66, 82]), "tensor 'b': it begins at byte"),
    "backwards": (with_b(data_offsets=[80, 64]), "tensor 'b': BF16 [8] has 16 bytes, and it has -"),
    "no offsets": (with_b(data_offsets=[0]), "tensor 'b': its offsets are [0]"),
}


@pytest.mark.parametrize(("content", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_names_itself_and_the_tensor(
    content: bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(UnsupportedModelError) as error:
        read_safetensors(path)
    assert str(error.value).startswith(f"{path} is broken or not whole: ")
    assert reason in str(error.value)


@given(at=st.integers(0, len(WRITTEN) - 1), byte=st.integers(0, 255), cut=st.integers(0, 9))
def test_a_changed_file_is_read_or_refused(
    at: int, byte: int, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "changed.safetensors"
    path.write_bytes((WRITTEN[:at] + bytes([byte]) + WRITTEN[at + 1 :])[: len(WRITTEN) - cut])
    message = refusal(path)
    assert message is None or message.startswith(str(path))


def refusal(path: Path) -> str | None:
    try:
        for tensor in read_safetensors(path):
            tensor.mapped().clone()
    except UnsupportedModelError as error:
        return str(error)
    return None


def test_tensors_of_all_types_and_shapes_are_as_they_were_written(tmp_path: Path) -> None:
    path, random = tmp_path / "model.safetensors", torch.Generator().manual_seed(0)
    tensors = {"scalar": torch.tensor(3.5), "empty": torch.ones(2, 0, 3)}
    for name, dtype in DTYPES.items():
        n_bytes = 6 * dtype.itemsize
        numbers = torch.randint(0, 2, (n_bytes,), generator=random, dtype=torch.uint8)
        tensors[name] = numbers.view(dtype).view(2, 3)
    save_file(tensors, path)
    found = {tensor.name: tensor for tensor in read_safetensors(path)}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        mapped, bare = found[name].mapped(), found[name].without_numbers()
        assert mapped.shape == bare.shape == tensor.shape
        assert mapped.dtype is bare.dtype is tensor.dtype
        assert mapped.reshape(-1).view(torch.uint8).equal(tensor.reshape(-1).view(torch.uint8))


def test_a_file_that_became_shorter_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(WRITTEN)
    tensor = read_safetensors(path)[0]
    path.write_bytes(WRITTEN[:-1])
    with pytest.raises(UnsupportedModelError, match="tensor 'a': the file has become shorter"):
        tensor.mapped()


def test_what_was_written_beside_a_tensor_stays_when_it_is_let_go(tmp_path: Path) -> None:
    """Adapters are merged into weights where these lie."""
    path, size, border = tmp_path / "file", 1 << 18, 100_001
    path.write_bytes(bytes([1]) * size)
    mapped = MappedFile(path, size)
    written = torch.frombuffer(mapped.data, dtype=torch.uint8)
    written[:border] = 2
    FileSpan(mapped, border, size).let_go()
    assert bool((written[:border] == 2).all())
    assert bool((written[border:] == 1).all())
    written[border:] = 3  # what no tensor is allowed
    FileSpan(mapped, border, size).let_go()
    assert int(written[-1]) == 1  # it was read anew
