"""A model in several files is read as one, and never as parts of two."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest

from deployments.engine.loading.gguf.errors import GGUFError
from deployments.engine.loading.gguf.reader import read_gguf
from deployments.engine.loading.gguf.stored_tensor import dequantize
from tests.engine.loading.gguf import by_hand

NAMES = [f"blk.{number}.weight" for number in range(5)]


def write(folder: Path, name: str = "model", names: Sequence[str] = NAMES) -> list[Path]:
    """Writes parts of two tensors each. A tensor holds its number in the list."""
    writer = gguf.GGUFWriter(folder / f"{name}.gguf", "llama", split_max_tensors=2)
    writer.add_uint32("llama.block_count", len(names))
    for number, tensor in enumerate(names):
        writer.add_tensor(tensor, np.full((3, 8), number, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(folder.glob(f"{name}-*.gguf"))


@pytest.mark.parametrize("part", range(3))
def test_any_part_gives_the_whole_model(part: int, tmp_path: Path) -> None:
    parts = write(tmp_path)
    assert len(parts) == 3
    found = read_gguf(parts[part])
    assert found.files == tuple(parts)
    assert found.metadata["llama.block_count"] == 5
    assert list(found.tensors) == NAMES
    for number, name in enumerate(NAMES):
        assert found.tensors[name].file.path == parts[number // 2]
        assert (dequantize(found.tensors[name]) == number).all()


def test_a_link_to_a_part_has_its_siblings_beside_it(tmp_path: Path) -> None:
    """The cache of a hub has links with the names of files to files with other names."""
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    for number, part in enumerate(write(tmp_path)):
        (snapshot / part.name).symlink_to(part.rename(tmp_path / f"blob{number}"))
    assert list(read_gguf(next(snapshot.iterdir())).tensors) == NAMES


def test_a_missing_part_is_named(tmp_path: Path) -> None:
    parts = write(tmp_path)
    parts[1].unlink()
    with pytest.raises(GGUFError, match=re.escape(f"{parts[1]}: there is no such file")):
        read_gguf(parts[0])


def test_a_broken_part_is_named(tmp_path: Path) -> None:
    parts = write(tmp_path)
    parts[2].write_bytes(parts[2].read_bytes()[:-1])
    with pytest.raises(GGUFError, match=re.escape(f"{parts[2]}: tensor")):
        read_gguf(parts[0])


def test_parts_that_changed_places_are_refused(tmp_path: Path) -> None:
    parts = write(tmp_path)
    parts[0].rename(tmp_path / "first")
    parts[1].rename(parts[0])
    (tmp_path / "first").rename(parts[1])
    with pytest.raises(GGUFError, match=re.escape(f"{parts[0]}: key 'split.no'")):
        read_gguf(parts[2])


@pytest.mark.parametrize(
    ("names", "key"), [(NAMES[:3], "split.count"), (NAMES + ["more"], "split.tensors.count")]
)
def test_a_part_of_another_split_is_refused(names: list[str], key: str, tmp_path: Path) -> None:
    parts, others = write(tmp_path), write(tmp_path, "other", names)
    shutil.copy(others[1], parts[1])
    with pytest.raises(GGUFError, match=re.escape(f"{parts[1]}: key '{key}': it is of another")):
        read_gguf(parts[0])


def test_a_tensor_in_two_parts_is_refused(tmp_path: Path) -> None:
    parts, others = write(tmp_path), write(tmp_path, "other", [NAMES[0], "more", *NAMES[:1:-1]])
    shutil.copy(others[1], parts[1])
    with pytest.raises(GGUFError) as error:
        read_gguf(parts[0])
    assert str(error.value).startswith(f"{parts[2]}: tensor 'blk.4.weight': it is there twice")
    assert str(parts[1]) in str(error.value)


def test_parts_with_too_few_tensors_are_refused(tmp_path: Path) -> None:
    parts, others = write(tmp_path), write(tmp_path, "other", NAMES)
    for path in (*parts, *others):
        path.write_bytes(
            path.read_bytes().replace(
                by_hand.key("split.tensors.count", 5, by_hand.u32(5)),
                by_hand.key("split.tensors.count", 5, by_hand.u32(6)),
            )
        )
    with pytest.raises(GGUFError, match=re.escape("it is 6, and the parts have 5")):
        read_gguf(parts[0])


@pytest.mark.parametrize("name", ["model.gguf", "m-00001-of-00002.gguf", "m-1-of-3.gguf"])
def test_a_part_by_another_name_is_refused(name: str, tmp_path: Path) -> None:
    path = write(tmp_path)[0].rename(tmp_path / name)
    with pytest.raises(GGUFError, match="its name must end with -0000X-of-00003"):
        read_gguf(path)


def test_a_part_without_the_keys_of_a_split_is_refused(tmp_path: Path) -> None:
    parts = write(tmp_path)
    parts[1].write_bytes(by_hand.gguf([], [by_hand.entry("t")]))
    with pytest.raises(GGUFError, match=re.escape(f"{parts[1]}: key 'split.no': it is missing")):
        read_gguf(parts[0])


def test_a_split_of_one_part_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(by_hand.gguf([by_hand.key("split.count", 2, b"\1\0")], [by_hand.entry("t")]))
    assert list(read_gguf(path).tensors) == ["t"]
