"""Loading a quantized model takes less memory than its file and one layer: no part of the file
stays in memory beside what is made of it."""

from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from safetensors.torch import save_file
from transformers import LlamaConfig

from deployments.engine.loading.loader import load_model
from tests.forking import FORKING

MIB = 1 << 20
# What allocators keep of memory that is free again: it does not grow with the file.
ALLOCATORS = 16 * MIB
N_LAYERS, HIDDEN, INNER, KV, VOCAB, HEADS = 12, 1024, 4096, 256, 512, 16
GROUP = 128
# The outputs and inputs of each projection, by its name in either kind of file.
PROJECTIONS = {
    ("attn_q", "self_attn.q_proj"): (HIDDEN, HIDDEN),
    ("attn_k", "self_attn.k_proj"): (KV, HIDDEN),
    ("attn_v", "self_attn.v_proj"): (KV, HIDDEN),
    ("attn_output", "self_attn.o_proj"): (HIDDEN, HIDDEN),
    ("ffn_gate", "mlp.gate_proj"): (INNER, HIDDEN),
    ("ffn_up", "mlp.up_proj"): (INNER, HIDDEN),
    ("ffn_down", "mlp.down_proj"): (HIDDEN, INNER),
}
Q4_K, Q6_K = GGMLQuantizationType.Q4_K, GGMLQuantizationType.Q6_K
TYPES = {"attn_v": Q6_K, "ffn_down": Q6_K}  # as in Q4_K_M
SCALES = {Q4_K: (0, 2), Q6_K: (208,)}  # bytes of a block at which a number of float16 begins
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
PRESENT_IS_PEAK = "5"


def write_gguf(path: Path, n_layers: int) -> Path:
    """A model of random blocks."""
    random = np.random.default_rng(0)
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(n_layers)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV * HEADS // HIDDEN)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCAB)
    writer.add_rope_freq_base(1e4)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list([str(token) for token in range(VOCAB)])

    def add(name: str, n_outputs: int, n_inputs: int, kind: GGMLQuantizationType) -> None:
        n_weights, n_bytes = gguf.GGML_QUANT_SIZES[kind]
        shape = n_outputs, n_inputs // n_weights, n_bytes
        blocks = random.integers(0, 256, shape, dtype=np.uint8)
        for at in SCALES[kind]:
            blocks[..., at : at + 2] = np.array([1e-3], np.float16).view(np.uint8)
        writer.add_tensor(f"{name}.weight", blocks.reshape(n_outputs, -1), raw_dtype=kind)

    add("token_embd", VOCAB, HIDDEN, Q4_K)
    add("output", VOCAB, HIDDEN, Q6_K)
    norms = [
        "output_norm",
        *(f"blk.{n}.{at}_norm" for n in range(n_layers) for at in ("attn", "ffn")),
    ]
    for name in norms:
        writer.add_tensor(f"{name}.weight", np.ones(HIDDEN, np.float32))
    for layer in range(n_layers):
        for (name, _), shape in PROJECTIONS.items():
            add(f"blk.{layer}.{name}", *shape, TYPES.get(name, Q4_K))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def write_gptq(folder: Path, n_layers: int) -> Path:
    """A model of random words. They are packed along inputs: each output is in all pages."""
    random = torch.Generator().manual_seed(0)
    norms = ("input_layernorm", "post_attention_layernorm")
    names = [f"model.layers.{n}.{norm}" for n in range(n_layers) for norm in norms]
    tensors = {f"{name}.weight": torch.ones(HIDDEN).half() for name in ("model.norm", *names)}
    for name in ("model.embed_tokens", "lm_head"):
        tensors[f"{name}.weight"] = torch.randn(VOCAB, HIDDEN, generator=random).half()
    for layer in range(n_layers):
        for (_, name), (n_outputs, n_inputs) in PROJECTIONS.items():
            module, n_groups = f"model.layers.{layer}.{name}", n_inputs // GROUP
            for end, shape in {
                "qweight": (n_inputs // 8, n_outputs),
                "qzeros": (n_groups, n_outputs // 8),
            }.items():
                words = torch.randint(-(1 << 31), 1 << 31, shape, generator=random)
                tensors[f"{module}.{end}"] = words.int()
            tensors[f"{module}.scales"] = torch.full((n_groups, n_outputs), 1e-3).half()
            tensors[f"{module}.g_idx"] = torch.arange(n_inputs).int() // GROUP
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = LlamaConfig(
        hidden_size=HIDDEN,
        intermediate_size=INNER,
        num_hidden_layers=n_layers,
        num_attention_heads=HEADS,
        num_key_value_heads=KV * HEADS // HIDDEN,
        vocab_size=VOCAB,
        architectures=["LlamaForCausalLM"],
        quantization_config={"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False},
    )
    config.save_pretrained(folder)
    return folder


def size_of(path: Path) -> int:
    files = path.iterdir() if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def measure(small: Path, path: Path, results: Connection) -> None:
    """Sends by how many bytes this process grows at most as it loads a model."""
    load_model(str(small), dtype=torch.bfloat16)  # what is compiled for a first one
    CLEAR.write_text(PRESENT_IS_PEAK)
    before = measured("VmRSS")
    loaded = load_model(str(path), dtype=torch.bfloat16)
    results.send((measured("VmHWM") - before, loaded.n_bytes))


def measured(name: str) -> int:
    """Bytes of a line of this process' status."""
    return int(STATUS.read_text().partition(f"{name}:")[2].split()[0]) << 10


@pytest.mark.skipif(not CLEAR.exists(), reason="only Linux says it")
@pytest.mark.parametrize(
    ("write", "name"), [(write_gguf, "model.gguf"), (write_gptq, "model")], ids=["gguf", "gptq"]
)
def test_the_peak_is_below_the_file_and_one_layer(
    write: Callable[[Path, int], Path], name: str, tmp_path: Path
) -> None:
    small, path = write(tmp_path / f"small-{name}", 1), write(tmp_path / name, N_LAYERS)
    layer = (size_of(path) - size_of(small)) // (N_LAYERS - 1)
    results, theirs = FORKING.Pipe(duplex=False)
    process = FORKING.Process(target=measure, args=(small, path, theirs), daemon=True)
    process.start()
    theirs.close()  # so that its death is an end of the file
    try:
        growth, n_bytes = results.recv()
    finally:
        process.kill()
        process.join()
    assert growth > 0.8 * n_bytes  # it was measured
    assert path.is_dir() or n_bytes <= size_of(path)  # the least of GPTQ is more
    assert growth < size_of(path) + layer + ALLOCATORS
