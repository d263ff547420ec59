"""Makes LoRA adapters in PEFT's form, of random matrices, and steps whose rows have some."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from deployments.adapter_files import read_adapter_info
from deployments.engine.forward.inputs import StepInputs
from kv.content import Adapter

Tensors = dict[str, torch.Tensor]
TARGETS = ("self_attn.q_proj", "mlp.down_proj")
ALL_TARGETS = (
    *("q_proj", "k_proj", "v_proj", "o_proj", "out_proj", "qkv_proj"),
    *("gate_proj", "up_proj", "down_proj", "gate_up_proj"),
)
CONFIG: dict[str, object] = {
    "peft_type": "LORA",
    "r": 4,
    "lora_alpha": 6,
    "bias": "none",
    "target_modules": ["q_proj", "down_proj"],
    "init_lora_weights": True,
    "lora_dropout": 0.1,
    "modules_to_save": None,
    "use_dora": False,
}


def step_with_adapters(slots: Sequence[int], new_len: Sequence[int]) -> StepInputs:
    """Returns a step whose rows have these slots and so many tokens each, and nothing else."""
    nothing = np.empty(0, dtype=np.int64)
    return StepInputs(
        *(nothing, nothing, nothing, np.array(new_len), nothing, nothing, nothing),
        adapter_slots=np.array(slots),
    )


def lora_tensors(
    model: PreTrainedModel, seed: int = 1, rank: int = 4, targets: Sequence[str] = TARGETS
) -> Tensors:
    """Random matrices for the target modules, by PEFT's names."""
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, module in model.named_modules():
        if name.endswith(tuple(targets)) and isinstance(module, torch.nn.Linear):
            n_out, n_in = module.weight.shape
            stem = f"base_model.model.{name}"
            tensors[f"{stem}.lora_A.weight"] = torch.randn(rank, n_in, generator=generator) / 5
            tensors[f"{stem}.lora_B.weight"] = torch.randn(n_out, rank, generator=generator) / 5
    return tensors


def save_adapter(folder: Path, tensors: Tensors, **config: object) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text(json.dumps(CONFIG | config))
    save_file(tensors, folder / "adapter_model.safetensors")
    return str(folder)


def make_adapter(
    folder: Path,
    model: PreTrainedModel,
    seed: int = 1,
    *,
    rank: int = 4,
    targets: Sequence[str] = ALL_TARGETS,
    scale: float = 1.0,
) -> Adapter:
    """Saves an adapter and returns it as a request names it. The model must not be fused."""
    tensors = lora_tensors(model, seed, rank, targets)
    path = save_adapter(folder, tensors, r=rank)
    return Adapter(path, read_adapter_info(path).digest, scale)
