"""Loads Hugging Face decoder models and says what of them the engine can serve."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from deployments.engine.adapters import merge_adapters
from deployments.engine.attention import ATTENTION
from deployments.engine.quantization import Quantization, check_available, quantize
from deployments.engine.threads import one_thread

SERVED_LAYERS = frozenset({"full_attention", "sliding_attention"})
COPIES = 4  # weights on their way to a device at once: each waits for its file's pages in turn


class UnsupportedModelError(ValueError):
    """The architecture needs something that the engine does not have."""


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
    config = AutoConfig.from_pretrained(path)
    check_supported(config)
    dtype = dtype or default_dtype(device)
    check_available(quantization, device, dtype)
    with one_thread():
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, device_map=None
        )
        model.eval()
        if quantization == "none":
            place(model, device, placed)
        if seen is not None:
            seen(model)
        merge_adapters(model, adapters)
        # Its layers are placed one by one as they shrink: the whole may not fit on the device.
        quantize(model, quantization, device)
        place(model, device, placed)
        return model


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


def attach(model: PreTrainedModel, context_length: int) -> None:
    """Replaces the model's attention by the engine's. The model is of no other use afterwards."""
    check_supported(model.config)
    if not getattr(model, "_supports_attention_backend", True):
        raise UnsupportedModelError(
            f"{type(model).__name__} does not let its attention be replaced"
        )
    model.set_attn_implementation(ATTENTION)
    _settle_frequencies(model, context_length)


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


def check_supported(config: PretrainedConfig) -> None:
    text = config.get_text_config(decoder=True)
    if getattr(text, "is_encoder_decoder", False):
        raise UnsupportedModelError(f"{text.model_type} is an encoder-decoder model")
    if getattr(text, "kv_lora_rank", None):
        raise UnsupportedModelError(f"{text.model_type} has compressed keys and values")
    unknown = set(getattr(text, "layer_types", None) or ()) - SERVED_LAYERS
    if unknown:
        raise UnsupportedModelError(
            f"{text.model_type} has layers of type {', '.join(sorted(unknown))}; "
            f"served are {', '.join(sorted(SERVED_LAYERS))}"
        )
    if not hasattr(text, "num_attention_heads") or not hasattr(text, "num_hidden_layers"):
        raise UnsupportedModelError(f"{text.model_type} is not an attention decoder")


def default_dtype(device: torch.device | str) -> torch.dtype:
    """bfloat16 where the hardware multiplies it, else float32."""
    if torch.device(device).type != "cpu":
        return torch.bfloat16
    return torch.bfloat16 if torch.cpu._is_avx512_bf16_supported() else torch.float32


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """The model's tokenizer, which must be a fast one: others can't describe themselves."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path)
    if not tokenizer.is_fast:
        raise UnsupportedModelError(f"{type(tokenizer).__name__} has no fast implementation")
    return tokenizer
