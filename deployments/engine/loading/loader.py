"""Loads Hugging Face decoder models and says what of them the engine can serve."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Mxfp4Config,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from deployments.engine.attention.hf_hook import ATTN_IMPLEMENTATION
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.fusing import is_fusable
from deployments.engine.kernels.cpu.features import has_matmul_kernels, has_native_bf16
from deployments.engine.loading.attention_check import try_attention
from deployments.engine.loading.checks import (
    check_loaded,
    check_supported,
    check_tokenizer_files,
    check_weight_files,
    explained,
    quantization_of,
    read_config,
)
from deployments.engine.loading.lora import merge_adapters
from deployments.engine.loading.quantization import Quantization, check_available, quantize
from deployments.engine.threads import one_thread
from kv.cache import CacheShape

COPIES = 4  # weights on their way to a device at once: each waits for its file's pages in turn


def load_model(
    path: str,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    adapters: Sequence[tuple[str, float]] = (),
    quantization: Quantization = "none",
    seen: Callable[[PreTrainedModel], None] | None = None,
    placed: Callable[[float], None] | None = None,
) -> PreTrainedModel:
    """A model in evaluation mode. `path` is a directory or a hub id.

    adapters: folders of LoRA adapters, and how much of each is merged into the weights.
    quantization: of the linear layers, after that.
    seen: is shown the model as its files have it, before anything is merged.
    placed: hears from 0 to 1 how much of it is on a device that is not the CPU.

    Raises UnsupportedModelError, AdapterError, QuantizationError, or OSError when there is no such
    model.
    """
    config = read_config(path)
    check_supported(config)
    check_weight_files(path)
    dtype = dtype or default_dtype(device, config)
    check_available(quantization, device, dtype)
    with one_thread():
        model = _read(path, config, dtype)
        if quantization == "none":
            place(model, device, placed)
        if seen is not None:
            seen(model)
        merge_adapters(model, adapters)
        # Its layers are placed one by one as they shrink: the whole may not fit on the device.
        quantize(model, quantization, device)
        place(model, device, placed)
        return model


def _read(path: str, config: PretrainedConfig, dtype: torch.dtype) -> PreTrainedModel:
    """All of it from its files, or UnsupportedModelError."""
    quantized = quantization_of(config) is not None
    with explained(config.model_type):
        model: PreTrainedModel
        model, info = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=dtype,
            device_map=None,
            quantization_config=Mxfp4Config(dequantize=True) if quantized else None,
            ignore_mismatched_sizes=True,  # which are told of, and refused here
            output_loading_info=True,
            trust_remote_code=False,
        )
    check_loaded(info)
    return model.eval()


def place(
    model: PreTrainedModel,
    device: torch.device | str,
    placed: Callable[[float], None] | None = None,
) -> None:
    """Moves a model whose weights are mapped from its files, weight by weight.

    Each goes from its file's pages to the device: the host never holds a copy of the whole.
    """
    device = torch.device(device)
    weights = [weight for weight in model.parameters() if weight.device.type != device.type]
    if not weights:
        return
    total, done = sum(weight.nbytes for weight in weights), 0
    with ThreadPoolExecutor(COPIES) as pool:
        for weight in pool.map(lambda weight: _move(weight, device), weights):
            done += weight.nbytes
            if placed is not None:
                placed(done / total)
    model.to(device)  # buffers


def _move(weight: nn.Parameter, device: torch.device) -> nn.Parameter:
    # The parameter itself stays: it may be another layer's too.
    weight.data = weight.data.to(device)
    return weight


def attach(model: PreTrainedModel, shape: CacheShape) -> None:
    """Replaces the model's attention by the engine's. The model is of no other use afterwards.

    `shape` is of the cache that it will have. Raises UnsupportedModelError.
    """
    if not getattr(model, "_supports_attention_backend", True):
        raise UnsupportedModelError(
            f"{type(model).__name__} does not let its attention be replaced"
        )
    model.set_attn_implementation(ATTN_IMPLEMENTATION)
    _settle_frequencies(model, shape.max_tokens)
    try_attention(model, shape)


def _settle_frequencies(model: PreTrainedModel, context_length: int) -> None:
    """Gives every sequence the rotary frequencies of the longest one.

    Some models choose them anew for the longest sequence of each batch: a token's keys would then
    depend on its neighbours.
    """
    for module in model.modules():
        if getattr(module, "rope_type", None) in ("dynamic", "longrope"):
            end = torch.tensor([[context_length - 1]], device=model.device)
            module(torch.zeros(1, device=model.device), end)
            module.rope_type = "default"


def default_dtype(
    device: torch.device | str, config: PretrainedConfig | None = None
) -> torch.dtype:
    """bfloat16 where it is fast, else float32.

    A CPU without instructions for it needs kernels of ours and a model, whose `config` is given,
    that is fused and so computed by them alone.
    """
    if torch.device(device).type != "cpu" or has_native_bf16():
        return torch.bfloat16
    fast = config is not None and is_fusable(config) and has_matmul_kernels()
    return torch.bfloat16 if fast else torch.float32


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """The model's tokenizer, which must be a fast one: others can't describe themselves."""
    check_tokenizer_files(path)
    with explained(f"the tokenizer of {path}"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            path, trust_remote_code=False
        )
    if not tokenizer.is_fast:
        raise UnsupportedModelError(f"{type(tokenizer).__name__} has no fast implementation")
    return tokenizer
