"""Files of LoRA adapters in PEFT's form, written without torch."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

MODULE = "base_model.model.model.layers.0.self_attn.q_proj"


def save_small_adapter(folder: Path, seed: int = 1, rank: int = 4) -> Path:
    """Saves an adapter for no model in particular. Another seed makes other files."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 8}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    numbers = np.random.default_rng(seed)
    a, b = numbers.random((rank, 8), np.float32), numbers.random((8, rank), np.float32)
    save_file(
        {f"{MODULE}.lora_A.weight": a, f"{MODULE}.lora_B.weight": b},
        folder / "adapter_model.safetensors",
    )
    return folder
