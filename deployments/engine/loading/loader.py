"""Loads Hugging Face decoder models and prepares them for the engine, or refuses them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import torch
from torch import nn
from transformers import (
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from deployments.contract.outputs import ModelTask, Pooling
from deployments.engine.attention.hf_hook import ATTN_IMPLEMENTATION
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.by_rows import attention_of_rows
from deployments.engine.forward.execution import Execution
from deployments.engine.forward.fused.families import is_fusable
from deployments.engine.forward.fused.fusing import adapt, fuse_projections
from deployments.engine.forward.products.making import make_products, stored_weights
from deployments.engine.kernels.cpu.features import has_matmul_kernels, has_native_bf16
from deployments.engine.loading.checks import (
    check_supported,
)
from deployments.engine.loading.gguf.gguf_files import GGUFFiles
from deployments.engine.loading.gguf.names import is_gguf
from deployments.engine.loading.hub_files import HubFiles
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.lora import merge_adapters
from deployments.engine.loading.media.media_models import split_media
from deployments.engine.loading.media.speech import split_speech
from deployments.engine.loading.model_files import ModelFiles
from deployments.engine.loading.model_tasks import LABEL_TASKS, answer_as, auto_class, task_of
from deployments.engine.loading.quantization import Quantization, quantize
from deployments.engine.loading.sentence_files import SentenceFiles
from deployments.engine.threads import one_thread

# Weights that are copied to a device at the same time: each copy waits for pages of its file.
MAX_CONCURRENT_COPIES = 4


def load_model(
    path: str,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    adapters: Sequence[tuple[str, float]] = (),
    quantization: Quantization = "none",
    task: ModelTask | None = None,
    pooling: Pooling | None = None,
    on_weights_read: Callable[[PreTrainedModel], None] | None = None,
    on_copy_progress: Callable[[float], None] | None = None,
    is_whole: bool = True,
) -> LoadedModel:
    """A model in evaluation mode on `device`. `path` is a directory, a hub id or a GGUF file.

    dtype: of the weights; None: `default_dtype`.
    adapters: folder and scale of each LoRA adapter that is merged into the weights.
    quantization: of the linear layers, after the merge.
    task: what it is to answer with; None: what its files are made for.
    pooling: of its vectors; None: as its files say.
    on_weights_read: is called with the model as its files have it, before the merge.
    on_copy_progress: is called with the part of the bytes that is on the device, in 0..1. On a CPU
        quantized weights and experts alone go anywhere.
    is_whole: nobody takes a share of it. Else `finish_weights` is left to who does.

    Raises UnsupportedModelError, AdapterError, QuantizationError, or OSError if there is no such
    model.
    """
    found = model_files(path)
    config, files = found.config(), found.sentence_files()
    made_for = task_of(config, files)
    task = task or made_for
    if task is ModelTask.SCORE and made_for not in LABEL_TASKS:
        files = _as_judge(path, files, made_for)
    auto = auto_class(config, task)
    check_supported(config)
    found.check()
    if dtype is None:
        is_quantized = quantization != "none" or found.is_quantized()
        dtype = default_dtype(device, config, task, is_quantized=is_quantized)
    with one_thread():
        model = found.read_weights(config, dtype, auto)
        if quantization == "none":
            move_to_device(model, device, on_copy_progress)
        if on_weights_read is not None:
            on_weights_read(model)
        loaded = split_media(model, found.processor(config))
        merge_adapters(loaded, adapters)
        quantize(loaded.model, quantization)
        move_to_device(loaded.model, device, on_copy_progress)
        if loaded.media is not None:
            loaded.media.module.to(device)
        if is_whole:
            finish_weights(loaded.model, device, on_copy_progress)
        return answer_as(split_speech(loaded), task, files, pooling)


def finish_weights(
    model: PreTrainedModel,
    device: torch.device | str,
    on_progress: Callable[[float], None] | None = None,
) -> None:
    """Makes the products of a model's quantized weights and of its experts, or of those of a rank's
    share, on the device. `on_progress` is called as `load_model` says."""
    adapt(model)
    if stored_weights(model):
        fuse_projections(model, device)
    make_products(model, torch.device(device), on_progress)


def model_files(path: str) -> ModelFiles:
    """The files of a model: a directory, a hub id, or a GGUF file."""
    return GGUFFiles(path) if is_gguf(path) else HubFiles(path)


def _as_judge(path: str, files: SentenceFiles | None, made_for: ModelTask) -> SentenceFiles:
    """The files of a model without a head that is told to score. A generator does so by its tokens
    yes and no, as Qwen3-Reranker, whose older files do not name them.

    Raises UnsupportedModelError for a model that has nothing to score with.
    """
    vocabulary = load_tokenizer(path).get_vocab() if made_for is ModelTask.GENERATE else {}
    if not vocabulary.keys() >= {"yes", "no"}:
        raise UnsupportedModelError(
            "it can't score: it has no head for that, and is no generator with tokens yes and no"
        )
    ids = vocabulary["yes"], vocabulary["no"]
    return replace(files or SentenceFiles(), score_token_ids=ids)


def move_to_device(
    model: PreTrainedModel,
    device: torch.device | str,
    on_copy_progress: Callable[[float], None] | None = None,
) -> None:
    """Moves a model weight by weight. Tied weights stay tied.

    The weights are mapped from the model's files. Each is copied from its file's pages to the
    device, so that the host never holds a copy of the whole model.

    on_copy_progress: is called after each weight with the copied part of the bytes, in 0..1.
    """
    device = torch.device(device)
    stored = {id(weight) for weight in stored_weights(model)}  # these go there as products
    weights = [
        weight
        for weight in model.parameters()
        if weight.device.type != device.type and id(weight) not in stored
    ]
    if not weights:
        return
    total_bytes, copied_bytes = sum(weight.nbytes for weight in weights), 0
    with ThreadPoolExecutor(MAX_CONCURRENT_COPIES) as pool:
        for weight in pool.map(lambda weight: _move_weight(weight, device), weights):
            copied_bytes += weight.nbytes
            if on_copy_progress is not None:
                on_copy_progress(copied_bytes / total_bytes)
    model.to(device)  # buffers


def _move_weight(weight: nn.Parameter, device: torch.device) -> nn.Parameter:
    # The parameter object stays the same: another layer may share it.
    weight.data = weight.data.to(device)
    return weight


def replace_attention(model: PreTrainedModel, execution: Execution, context_length: int) -> None:
    """Replaces the model's attention by the engine's, for sequences of up to `context_length`
    tokens, unless it is run row by row. Only the engine can run the model afterwards.

    The last call counts: the first one may have a longer context than the pages have room for.
    """
    is_ours = execution.by_rows is None
    model.set_attn_implementation(ATTN_IMPLEMENTATION if is_ours else attention_of_rows(model))
    _fix_rotary_frequencies(model, context_length)


def _fix_rotary_frequencies(model: PreTrainedModel, context_length: int) -> None:
    """Gives every sequence the rotary frequencies of a sequence of `context_length` tokens.

    Some models choose the frequencies by the longest sequence of each batch. The keys of a token
    would then depend on the other sequences of its batch.
    """
    for module in model.modules():
        # Frequencies that were fixed before are chosen anew.
        rope_type = getattr(module, "unfixed_rope_type", getattr(module, "rope_type", None))
        by_layer_type = rope_type if isinstance(rope_type, dict) else {None: rope_type}
        unfixed = [name for name, kind in by_layer_type.items() if kind in ("dynamic", "longrope")]
        if not unfixed:
            continue
        module.unfixed_rope_type = module.rope_type = rope_type
        last_position = torch.tensor([[context_length - 1]], device=model.device)
        for name in unfixed:
            of_layers = {} if name is None else {"layer_type": name}
            module(torch.zeros(1, device=model.device), last_position, **of_layers)
        fixed = {**by_layer_type, **dict.fromkeys(unfixed, "default")}
        module.rope_type = fixed if isinstance(rope_type, dict) else fixed[None]


def default_dtype(
    device: torch.device | str,
    config: PretrainedConfig | None = None,
    task: ModelTask = ModelTask.GENERATE,
    *,
    is_quantized: bool = False,
) -> torch.dtype:
    """bfloat16 where it is fast, else float32. On a CPU vectors and scores are float32: each of
    their numbers is an answer.

    On a CPU without bfloat16 instructions it is fast for models that are fusable or quantized, and
    only where the engine's own kernels run. Their `config` must be given.
    """
    if torch.device(device).type != "cpu":
        return torch.bfloat16
    if task is not ModelTask.GENERATE:
        return torch.float32
    if has_native_bf16():
        return torch.bfloat16
    text = None if config is None else config.get_text_config(decoder=True)
    is_fast = (is_quantized or (text is not None and is_fusable(text))) and has_matmul_kernels()
    return torch.bfloat16 if is_fast else torch.float32


def load_tokenizer(path: str) -> PreTrainedTokenizerBase:
    """The model's tokenizer.

    Raises UnsupportedModelError if there is none or if it is not a fast one: only fast tokenizers
    can be written as a tokenizer.json.
    """
    tokenizer = model_files(path).tokenizer()
    if not tokenizer.is_fast:
        raise UnsupportedModelError(f"{type(tokenizer).__name__} has no fast implementation")
    return tokenizer
