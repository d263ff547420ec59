"""The engine serves GGUF files as they are: it answers as with their weights in float32."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType
from transformers import Gemma3TextConfig, LlamaConfig, PretrainedConfig, Qwen3MoeConfig

from deployments.adapter_files import AdapterError
from deployments.engine.forward.products.making import stored_weights
from deployments.engine.loading.gguf.model_plan import read_plan
from deployments.engine.loading.gguf.reader import read_gguf
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import load_model, load_tokenizer
from kv.content import Content
from tests.adapters import make_adapter
from tests.engine import laws
from tests.engine.drive import engine, random_ids, request, roomy
from tests.engine.loading.gguf import converted
from tests.engine.workload import Workload
from tests.models import SIZES, VOCAB, from_config

Q8_0, Q5_1, Q4_0 = (
    GGMLQuantizationType.Q8_0,
    GGMLQuantizationType.Q5_1,
    GGMLQuantizationType.Q4_0,
)
TOKENIZER = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": [*(chr(33 + token) for token in range(VOCAB - 1)), "!!"],
    "tokenizer.ggml.merges": ["! !"],
}
PACKED = {
    "attn_k[.]|ffn_up": Q5_1,
    "attn_(q|v|output)[.]|ffn_gate([.]|_exps)": Q4_0,
    "ffn_down|token_embd|output[.]": Q8_0,
}
Case = tuple[str, Callable[[], PretrainedConfig], converted.Modify, converted.AddKeys]
CASES: dict[str, Case] = {
    # Fused: queries and values of a layer have other types than keys.
    "llama": ("llama", lambda: LlamaConfig(**SIZES), converted.llama, converted.llama_keys),
    "tied": (
        "gemma3",
        lambda: Gemma3TextConfig(**SIZES, tie_word_embeddings=True),
        converted.gemma,
        converted.gemma_keys,
    ),
    "experts": (
        "qwen3moe",
        lambda: Qwen3MoeConfig(
            **SIZES,
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=32,
            norm_topk_prob=True,
        ),
        converted.experts,
        converted.qwen3_moe_keys,
    ),
}


def written(name: str, folder: Path) -> Path:
    architecture, config, modify, add_keys = CASES[name]
    return converted.write(
        from_config(config()),
        folder / "model.gguf",
        architecture,
        add_keys=add_keys,
        modify=modify,
        more_keys=TOKENIZER,
        packed=PACKED,
    )


def dequantized(file: Path) -> LoadedModel:
    plan = read_plan(read_gguf(file))
    model = from_config(plan.config)
    weights = {name: torch.from_numpy(source.float32()) for name, source in plan.sources.items()}
    model.load_state_dict(weights, strict=False)
    return LoadedModel(model)


@pytest.mark.parametrize("name", CASES)
def test_it_answers_as_with_its_weights_in_float32(name: str, tmp_path: Path) -> None:
    file = written(name, tmp_path)
    requests = [request(f"{n}", random_ids(n, n), max_tokens=6) for n in (5, 9, 2)]
    plain = Workload(model=lambda: dequantized(file), requests=requests)
    quantized = Workload(
        model=lambda: load_model(str(file), dtype=torch.float32),
        requests=requests,
        reference=lambda: plain.undisturbed,
    )
    laws.alone_is_as_the_reference_says(quantized)
    laws.batched_is_alone(quantized)
    laws.chunked_is_whole(quantized)


def test_its_weights_stay_quantized(tmp_path: Path) -> None:
    file = written("tied", tmp_path)
    told: list[float] = []
    loaded = load_model(str(file), dtype=torch.float32, on_copy_progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(stored_weights(loaded.model)) == 1  # the embeddings, over the output's matrix
    n_weights = sum(weight.numel() for weight in dequantized(file).model.parameters())
    assert loaded.n_bytes < 1.5 * n_weights


def test_adapters_are_served_beside_it_and_not_merged(tmp_path: Path) -> None:
    file = str(written("llama", tmp_path))
    adapter = make_adapter(tmp_path / "adapter", dequantized(Path(file)).model, seed=1)
    with pytest.raises(AdapterError, match=r"quantized .* serve the adapter beside"):
        load_model(file, dtype=torch.float32, adapters=[(adapter.path, 1.0)])
    adapted = replace(request("a", random_ids(9)), content=Content(adapters=(adapter,)))
    outcomes = []
    for model in (dequantized(Path(file)), load_model(file, dtype=torch.float32)):
        with engine(model=model, limits=roomy(max_loras=1)) as running:
            outcomes.append(running.run(adapted)[0].token_ids)
            assert outcomes[-1] != running.run(request("plain", random_ids(9)))[0].token_ids
    assert outcomes[0] == outcomes[1]


def test_its_tokenizer_is_that_of_the_file(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(written("llama", tmp_path)))
    assert tokenizer.is_fast
    assert tokenizer("AB!")["input_ids"] == [32, 33, 0]
