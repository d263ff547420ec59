"""Shards a model's weights over ranks by the tensor-parallel plan that transformers has for it.

Each rank computes with its shard alone. Where the plan asks for it, the output of a sharded module
is whole again, and the same on all ranks.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import (
    default_dtype,
    finish_weights,
    load_model,
    model_files,
)
from deployments.engine.loading.quantization import Quantization
from deployments.engine.parallel.ranks import Ranks, shard_range


def load_shard(
    path: str,
    ranks: Ranks,
    *,
    dtype: torch.dtype | None = None,
    adapters: Sequence[tuple[str, float]] = (),
    quantization: Quantization = "none",
    on_weights_read: Callable[[PreTrainedModel], None] | None = None,
) -> LoadedModel:
    """This rank's shard of a model, on the rank's device.

    The whole model passes through host memory: mapped from its files, or copied if `dtype` is not
    the type of the files. `on_weights_read` is called with the whole model, before adapters are
    merged. Raises as `load_model` and `check_shardable` do.
    """
    files = model_files(path)
    check_shardable(files.config(), ranks.world_size)
    is_quantized = quantization != "none" or files.is_quantized()
    dtype = dtype or default_dtype(ranks.device, is_quantized=is_quantized)
    loaded = load_model(
        path,
        dtype=dtype,
        adapters=adapters,
        quantization=quantization,
        on_weights_read=on_weights_read,
        is_whole=False,
    )
    shard(loaded.model, ranks)
    finish_weights(loaded.model, ranks.device)
    loaded.model.to(ranks.device)
    return replace(loaded, media=None)  # which ranks have no use for


def check_shardable(config: PretrainedConfig, world_size: int) -> None:
    """Raises ValueError if `world_size` does not divide the numbers of heads, and
    UnsupportedModelError if transformers has no plan that splits the model's layers, or the
    config no number of heads for all of them."""
    text = config.get_text_config(decoder=True)
    plan: Mapping[str, str] = getattr(text, "base_model_tp_plan", None) or {}
    # A plan for the embedding alone would have each rank compute all layers.
    if not any(".*" in name for name in plan):
        raise UnsupportedModelError(
            f"{text.model_type} has no tensor-parallel plan that splits its layers"
        )
    with unsupported_on_error(f"ranks can't share {text.model_type}"):  # they may differ by layer
        heads: int = text.num_attention_heads
        kv_heads: int = getattr(text, "num_key_value_heads", None) or heads
    if heads % world_size or kv_heads % world_size:
        raise ValueError(
            f"tensor_parallel: {world_size} ranks can't share {heads} attention heads "
            f"and {kv_heads} key-value heads equally"
        )


def shard(model: PreTrainedModel, ranks: Ranks) -> None:
    """Reduces a whole model, in place, to this rank's shard. Tied parameters stay tied.

    Raises UnsupportedModelError for a plan with an unknown style.
    """
    plan: Mapping[str, str] = model.tp_plan
    if unknown := set(plan.values()) - PARALLEL_STYLES.keys():
        raise UnsupportedModelError(
            f"{type(model).__name__} has a tensor-parallel plan of unknown styles: "
            f"{', '.join(sorted(unknown))}"
        )
    modules = dict(model.named_modules())
    shards: dict[tuple[int, SplitParameter], nn.Parameter] = {}  # by the whole one's id
    for module_name, module in modules.items():
        module_style = plan.get(_plan_key(module_name))
        for name, whole in list(module.named_parameters(recurse=False)):
            style = plan.get(_plan_key(f"{module_name}.{name}"), module_style)
            split = replicate if style is None else PARALLEL_STYLES[style].split
            if split is not replicate:
                shard = shards.setdefault((id(whole), split), _shard(split, whole, name, ranks))
                module.register_parameter(name, shard)
        if module_style is not None:
            PARALLEL_STYLES[module_style].add_hooks(module, ranks)
        if isinstance(module, nn.Linear):
            module.out_features, module.in_features = module.weight.shape


def _plan_key(name: str) -> str:
    """The key of a module or parameter in plans, which have `*` in place of a layer's number."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", name)


def _shard(split: "SplitParameter", whole: nn.Parameter, name: str, ranks: Ranks) -> nn.Parameter:
    # A copy: a view would keep the whole parameter in memory.
    return nn.Parameter(split(whole.detach(), name, ranks).clone(), requires_grad=False)


# Takes a whole parameter and its name in its module. Returns this rank's shard, a view or a copy.
SplitParameter = Callable[[Tensor, str, Ranks], Tensor]
# Makes a sharded module take and return what its neighbours in the model expect.
AddHooks = Callable[[nn.Module, Ranks], None]


def replicate(whole: Tensor, name: str, ranks: Ranks) -> Tensor:
    return whole


def split_output(whole: Tensor, name: str, ranks: Ranks) -> Tensor:
    dim = _output_dim(whole)
    return whole.narrow(dim, *_local_range(whole.shape[dim], ranks))


def split_input(whole: Tensor, name: str, ranks: Ranks) -> Tensor:
    if name == "bias":  # it is added once, to the sum of all ranks
        return whole
    return whole.narrow(-1, *_local_range(whole.shape[-1], ranks))


def split_packed_output(whole: Tensor, name: str, ranks: Ranks) -> Tensor:
    """Returns this rank's shard of each of the two matrices in one parameter."""
    halves = whole.chunk(2, _output_dim(whole))
    return torch.cat([split_output(half, name, ranks) for half in halves], _output_dim(whole))


def split_packed_input(whole: Tensor, name: str, ranks: Ranks) -> Tensor:
    if name == "bias":
        return whole
    return torch.cat([split_input(half, name, ranks) for half in whole.chunk(2, -1)], -1)


def split_vocab(whole: Tensor, name: str, ranks: Ranks) -> Tensor:
    """This rank's rows of an embedding [vocab, hidden], and a row of zeros for all other tokens."""
    return nn.functional.pad(split_output(whole, name, ranks), (0, 0, 0, 1))


def _output_dim(weight: Tensor) -> int:
    """The output dimension of a parameter [out], [out, in] or [experts, out, in]."""
    return max(weight.dim() - 2, 0)


def _local_range(n: int, ranks: Ranks) -> tuple[int, int]:
    """Start and length of this rank's part of `n` elements."""
    return shard_range(n, ranks.rank, ranks.world_size)


def no_hooks(module: nn.Module, ranks: Ranks) -> None:
    pass


def gather_output(module: nn.Module, ranks: Ranks) -> None:
    n: int = module.out_features  # type: ignore[assignment]
    module.register_forward_hook(lambda _module, _args, output: ranks.all_gather(output, n))


def sum_output(module: nn.Module, ranks: Ranks) -> None:
    bias = getattr(module, "bias", None)
    if bias is None:
        module.register_forward_hook(lambda _module, _args, output: ranks.all_reduce(output))
        return
    module.bias = None  # type: ignore[assignment]
    module.register_parameter("output_bias", bias)
    module.register_forward_hook(
        lambda module, _args, output: ranks.all_reduce(output).add_(module.output_bias)
    )


def split_input_and_sum_output(module: nn.Module, ranks: Ranks) -> None:
    start, n = _local_range(module.in_features, ranks)  # type: ignore[arg-type]
    module.register_forward_pre_hook(lambda _module, args: (args[0].narrow(-1, start, n),))
    sum_output(module, ranks)


def look_up_local_vocab(module: nn.Module, ranks: Ranks) -> None:
    """Has an embedding return a token's vector on the rank that has it, and zeros on all others."""
    start, n = _local_range(module.num_embeddings, ranks)  # type: ignore[arg-type]

    def local_ids(_module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        ids = args[0] - start
        return (ids.where((ids >= 0) & (ids < n), n),)  # row n has the zeros

    if isinstance(module, nn.Embedding):
        module.padding_idx = None  # it may be beyond this shard
    module.register_forward_pre_hook(local_ids)
    sum_output(module, ranks)


@dataclass(frozen=True, slots=True)
class ParallelStyle:
    """How a plan's style splits the parameters of a module, and which hooks the module needs."""

    split: SplitParameter = replicate
    add_hooks: AddHooks = no_hooks


# By transformers' names. What a style does for gradients is left out.
PARALLEL_STYLES: Mapping[str, ParallelStyle] = {
    "colwise": ParallelStyle(split_output),
    "colwise_gather_output": ParallelStyle(split_output, gather_output),
    "colwise_rep": ParallelStyle(split_output, gather_output),
    "rowwise": ParallelStyle(split_input, sum_output),
    "rowwise_split_input": ParallelStyle(split_input, split_input_and_sum_output),
    "rowwise_rep": ParallelStyle(split_input, split_input_and_sum_output),
    "packed_colwise": ParallelStyle(split_packed_output),
    "packed_rowwise": ParallelStyle(split_packed_input),
    "embedding_rowwise": ParallelStyle(split_vocab, look_up_local_vocab),
    "mla_kv_a_proj": ParallelStyle(),  # all heads share what it computes
    "moe_tp_experts": ParallelStyle(add_hooks=sum_output),
    "all_reduce": ParallelStyle(add_hooks=sum_output),
    "replicated_with_grad_allreduce": ParallelStyle(),
    "replicate": ParallelStyle(),
    "local_params": ParallelStyle(),
}
