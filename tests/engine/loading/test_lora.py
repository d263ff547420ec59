"""A merge adds exactly what the files of a LoRA adapter describe, and leaves nothing out."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from deployments.adapter_files import AdapterError
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import load_model
from deployments.engine.loading.lora import merge_adapters
from tests.adapters import CONFIG, Tensors, lora_tensors, save_adapter
from tests.checkpoints import save_checkpoint
from tests.models import VOCAB, tiny_model


def logits(model: PreTrainedModel) -> torch.Tensor:
    ids = torch.arange(20).remainder(VOCAB)[None]
    with torch.no_grad():
        result: torch.Tensor = model(ids).logits
        return result


def logits_with_unmerged_adapter(
    model: PreTrainedModel, tensors: Tensors, scaling: float
) -> torch.Tensor:
    """Computes as PEFT in training: adds the adapter's product to the output of each module."""
    hooks = []
    for name, module in model.named_modules():
        stem = f"base_model.model.{name}"
        if f"{stem}.lora_A.weight" in tensors:
            lora_a, lora_b = tensors[f"{stem}.lora_A.weight"], tensors[f"{stem}.lora_B.weight"]

            def add_lora_output(
                _: torch.nn.Module,
                args: tuple[torch.Tensor],
                result: torch.Tensor,
                lora_a: torch.Tensor = lora_a,
                lora_b: torch.Tensor = lora_b,
            ) -> torch.Tensor:
                return result + scaling * (args[0] @ lora_a.T @ lora_b.T)

            hooks.append(module.register_forward_hook(add_lora_output))
    assert hooks
    result = logits(model)
    for hook in hooks:
        hook.remove()
    return result


@pytest.mark.parametrize(
    ("config", "scale", "factor"),
    [
        ({}, 1.0, 1.5),
        ({}, -0.25, -0.375),
        ({"use_rslora": True}, 1.0, 3.0),
        ({"alpha_pattern": {"q_proj": 2, r"layers\.\d+\.mlp\.down_proj": 2}}, 1.0, 0.5),
        ({"r": 8, "rank_pattern": {"self_attn.q_proj": 4, "down_proj": 4}}, 1.0, 1.5),
    ],
)
def test_a_merged_model_computes_what_the_model_with_its_adapter_does(
    tmp_path: Path, config: dict[str, object], scale: float, factor: float
) -> None:
    model = tiny_model()
    tensors = lora_tensors(model)
    expected = logits_with_unmerged_adapter(model, tensors, factor)
    assert not torch.allclose(expected, logits(model), atol=0.1)
    merge_adapters(LoadedModel(model), [(save_adapter(tmp_path, tensors, **config), scale)])
    torch.testing.assert_close(logits(model), expected, atol=1e-3, rtol=1e-3)


def test_scale_0_changes_nothing(tmp_path: Path) -> None:
    model = tiny_model()
    before = logits(model)
    merge_adapters(LoadedModel(model), [(save_adapter(tmp_path, lora_tensors(model)), 0.0)])
    assert torch.equal(logits(model), before)


def test_adapters_add_up(tmp_path: Path) -> None:
    model, other = tiny_model(), tiny_model()
    first, second = lora_tensors(model), lora_tensors(model, seed=2)
    folders = [save_adapter(tmp_path / "first", first), save_adapter(tmp_path / "second", second)]
    merge_adapters(LoadedModel(model), [(folders[0], 1.0), (folders[1], 0.5)])
    merge_adapters(LoadedModel(other), [(folders[1], 0.5), (folders[0], 1.0)])
    torch.testing.assert_close(logits(model), logits(other), atol=1e-3, rtol=1e-3)
    stem = "model.layers.0.self_attn.q_proj"
    expected = tiny_model().get_submodule(stem).weight
    for tensors, factor in ((first, 1.5), (second, 0.75)):
        lora_a, lora_b = (tensors[f"base_model.model.{stem}.lora_{x}.weight"] for x in "AB")
        expected = expected + factor * lora_b @ lora_a
    torch.testing.assert_close(model.get_submodule(stem).weight, expected)


def test_weights_of_half_precision_are_rounded_once(tmp_path: Path) -> None:
    model = tiny_model().bfloat16()
    tensors = {name: tensor.bfloat16() for name, tensor in lora_tensors(model).items()}
    stem = "model.layers.1.mlp.down_proj"
    lora_a, lora_b = (tensors[f"base_model.model.{stem}.lora_{x}.weight"].float() for x in "AB")
    exact = (
        model.get_submodule(stem).weight.detach().double() + 1.5 * lora_b.double() @ lora_a.double()
    )
    merge_adapters(LoadedModel(model), [(save_adapter(tmp_path, tensors), 1.0)])
    merged = model.get_submodule(stem).weight
    assert merged.dtype is torch.bfloat16
    ulp = 2.0 ** (torch.frexp(exact.float()).exponent - 8).double()
    assert ((merged.double() - exact).abs() <= 0.51 * ulp).all()


def test_a_checkpoint_is_loaded_with_its_adapters(tmp_path: Path) -> None:
    path = str(save_checkpoint(tmp_path / "model"))
    base = load_model(path, dtype=torch.float32)
    folder = save_adapter(tmp_path / "adapter", lora_tensors(base.model))
    loaded = load_model(path, dtype=torch.float32, adapters=[(folder, 2.0)])
    merge_adapters(base, [(folder, 2.0)])
    assert torch.equal(logits(loaded.model), logits(base.model))


@pytest.mark.parametrize(
    "config",
    [
        {"peft_type": "LOHA"},
        {"use_dora": True},
        {"modules_to_save": ["lm_head"]},
        {"bias": "all"},
        {"lora_bias": True},
        {"fan_in_fan_out": True},
        {"init_lora_weights": "pissa"},
        {"layer_replication": [[0, 2]]},
        {"target_parameters": ["mlp.experts"]},
        {"trainable_token_indices": [3]},
        {"something_new": {"a": 1}},
        {"r": 0},
        {"lora_alpha": "6"},
        {"rank_pattern": [4]},
    ],
    ids=lambda config: next(iter(config)),
)
def test_what_a_merge_would_leave_out_is_refused_by_name(
    tmp_path: Path, config: dict[str, object]
) -> None:
    model = tiny_model()
    folder = save_adapter(tmp_path, lora_tensors(model), **config)
    with pytest.raises(AdapterError, match=next(iter(config))) as refused:
        merge_adapters(LoadedModel(model), [(folder, 1.0)])
    assert folder in str(refused.value)


STEM = "base_model.model.model.layers.0.self_attn.q_proj"
ZERO = torch.zeros(4, 4)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        ({f"{STEM}.lora_magnitude_vector": torch.zeros(4)}, "q_proj.lora_magnitude_vector"),
        ({"base_model.model.model.embed_tokens.lora_embedding_A": ZERO}, "lora_embedding_A"),
        ({f"{STEM}.lora_B.weight": None}, "q_proj: one of lora_A and lora_B is missing"),
        ({f"{STEM}.lora_B.weight": torch.zeros(32, 3)}, "q_proj: its matrices have ranks 4 and 3"),
        ({f"{STEM}.lora_B.weight": torch.zeros(9, 4)}, r"q_proj: made for weights of \(9, 32\)"),
        (
            {f"{STEM}s.lora_A.weight": ZERO, f"{STEM}s.lora_B.weight": ZERO + 1},
            "q_projs: the model has no such module",
        ),
        (
            {
                "base_model.model.model.norm.lora_A.weight": ZERO,
                "base_model.model.model.norm.lora_B.weight": ZERO + 1,
            },
            "model.norm: only linear layers",
        ),
    ],
)
def test_an_adapter_of_another_model_is_refused_and_changes_nothing(
    tmp_path: Path, tensors: dict[str, torch.Tensor | None], reason: str
) -> None:
    model = tiny_model()
    before = logits(model)
    all_tensors = {**lora_tensors(model), **tensors}
    folder = save_adapter(
        tmp_path, {name: value for name, value in all_tensors.items() if value is not None}
    )
    with pytest.raises(AdapterError, match=reason) as refused:
        merge_adapters(LoadedModel(model), [(folder, 1.0)])
    assert folder in str(refused.value)
    assert torch.equal(logits(model), before)


def test_an_adapter_of_tied_weights_is_refused(tmp_path: Path) -> None:
    model = tiny_model()
    model.get_output_embeddings().weight = model.get_input_embeddings().weight
    stem = "base_model.model.lm_head"
    tensors = {
        f"{stem}.lora_A.weight": torch.zeros(4, 32),
        f"{stem}.lora_B.weight": torch.zeros(VOCAB, 4),
    }
    with pytest.raises(AdapterError, match="lm_head: its weights are the embedding's too"):
        merge_adapters(LoadedModel(model), [(save_adapter(tmp_path, tensors), 1.0)])


def test_a_folder_without_its_files_is_refused(tmp_path: Path) -> None:
    model = tiny_model()
    with pytest.raises(AdapterError, match=r"adapter_config\.json can't be read"):
        merge_adapters(LoadedModel(model), [(str(tmp_path), 1.0)])
    (tmp_path / "adapter_config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(AdapterError, match=r"adapter_model\.safetensors can't be read"):
        merge_adapters(LoadedModel(model), [(str(tmp_path), 1.0)])
    (tmp_path / "adapter_model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(AdapterError, match=r"adapter_model\.safetensors can't be read"):
        merge_adapters(LoadedModel(model), [(str(tmp_path), 1.0)])
    save_file({}, tmp_path / "adapter_model.safetensors")
    with pytest.raises(AdapterError, match="is empty"):
        merge_adapters(LoadedModel(model), [(str(tmp_path), 1.0)])
