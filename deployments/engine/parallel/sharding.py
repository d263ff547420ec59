"""Cuts a model's weights into the ranks' shares by the tensor-parallel plan that it came with.

Each rank computes with its share alone; what leaves a cut module is whole again wherever the plan
says so, and the same on all ranks.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.checks import read_config
from deployments.engine.loading.loader import default_dtype, load_model
from deployments.engine.parallel.ranks import Ranks, share

KEYS = ("k_proj", "qkv_proj", "query_key_value")  # whose output holds the attention's keys


def load_share(
    path: str,
    ranks: Ranks,
    *,
    dtype: torch.dtype | None = None,
    adapters: Sequence[tuple[str, float]] = (),
    seen: Callable[[PreTrainedModel], None] | None = None,
) -> PreTrainedModel:
    """This rank's share of a model, on its device. Raises as `load_model` and `check_shares` do.

    `seen` is shown the whole of it.

    The whole model passes through host memory: mapped from its files, unless its type changes.
    """
    check_shares(read_config(path), ranks.size)
    dtype = dtype or default_dtype(ranks.device)
    model = load_model(path, dtype=dtype, adapters=adapters, seen=seen)
    shard(model, ranks)
    return model.to(ranks.device)


def check_shares(config: PretrainedConfig, size: int) -> None:
    """Raises ValueError when so many ranks can't share the model's heads equally, and
    UnsupportedModelError when the model comes with no plan that splits its layers."""
    text = config.get_text_config(decoder=True)
    heads: int = text.num_attention_heads
    kv_heads: int = getattr(text, "num_key_value_heads", None) or heads
    if heads % size or kv_heads % size:
        raise ValueError(
            f"tensor_parallel: {size} ranks can't share {heads} attention heads "
            f"and {kv_heads} key-value heads equally"
        )
    plan: Mapping[str, str] = getattr(text, "base_model_tp_plan", None) or {}
    # A plan for the embedding alone would have each rank compute all layers.
    if not any(".*" in name for name in plan):
        raise UnsupportedModelError(
            f"{text.model_type} has no tensor-parallel plan that splits its layers"
        )


def local_kv_heads(model: PreTrainedModel, kv_heads: int, size: int) -> int:
    """Of the key-value heads, those that one rank attends with: all, where keys are gathered."""
    plan: Mapping[str, str] = model.tp_plan
    cut = any(name.split(".")[-1] in KEYS and plan[name] == "colwise" for name in plan)
    return kv_heads // size if cut else kv_heads


def shard(model: PreTrainedModel, ranks: Ranks) -> None:
    """Leaves this rank's share of a whole model. Raises UnsupportedModelError for its plan."""
    plan: Mapping[str, str] = model.tp_plan
    if unknown := set(plan.values()) - STYLES.keys():
        raise UnsupportedModelError(
            f"{type(model).__name__} has a tensor-parallel plan of unknown styles: "
            f"{', '.join(sorted(unknown))}"
        )
    modules = dict(model.named_modules())
    shares: dict[tuple[int, Cut], nn.Parameter] = {}  # tied parameters stay tied
    for module_name, module in modules.items():
        own = plan.get(_pattern(module_name))
        for name, whole in list(module.named_parameters(recurse=False)):
            style = plan.get(_pattern(f"{module_name}.{name}"), own)
            cut = whole_on_each if style is None else STYLES[style].cut
            if cut is not whole_on_each:
                part = shares.setdefault((id(whole), cut), _part(cut, whole, name, ranks))
                module.register_parameter(name, part)
        if own is not None:
            STYLES[own].join(module, ranks)


def _pattern(name: str) -> str:
    """As plans name what all layers have."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", name)


def _part(cut: "Cut", whole: nn.Parameter, name: str, ranks: Ranks) -> nn.Parameter:
    # A copy: a view would keep the whole.
    return nn.Parameter(cut(whole.detach(), name, ranks).clone(), requires_grad=False)


Cut = Callable[[Tensor, str, Ranks], Tensor]  # a rank's share of the parameter of this name
Join = Callable[[nn.Module, Ranks], None]  # makes a module take and give what its neighbours expect


def whole_on_each(whole: Tensor, name: str, ranks: Ranks) -> Tensor:
    return whole


def by_output(whole: Tensor, name: str, ranks: Ranks) -> Tensor:
    return whole.narrow(_output_dim(whole), *share(whole.shape[_output_dim(whole)], *_place(ranks)))


def by_input(whole: Tensor, name: str, ranks: Ranks) -> Tensor:
    if name == "bias":  # added once, to the sum
        return whole
    return whole.narrow(-1, *share(whole.shape[-1], *_place(ranks)))


def by_halves_of_output(whole: Tensor, name: str, ranks: Ranks) -> Tensor:
    """Two matrices in one: a share of each."""
    halves = whole.chunk(2, _output_dim(whole))
    return torch.cat([by_output(half, name, ranks) for half in halves], _output_dim(whole))


def by_halves_of_input(whole: Tensor, name: str, ranks: Ranks) -> Tensor:
    if name == "bias":
        return whole
    return torch.cat([by_input(half, name, ranks) for half in whole.chunk(2, -1)], -1)


def by_output_and_zeros(whole: Tensor, name: str, ranks: Ranks) -> Tensor:
    """For the vectors of an embedding: behind its own stands one for what others have."""
    return nn.functional.pad(by_output(whole, name, ranks), (0, 0, 0, 1))


def _output_dim(weight: Tensor) -> int:
    """Of [out], [out, in] or [experts, out, in]."""
    return max(weight.dim() - 2, 0)


def _place(ranks: Ranks) -> tuple[int, int]:
    return ranks.rank, ranks.size


def as_it_is(module: nn.Module, ranks: Ranks) -> None:
    pass


def gathered(module: nn.Module, ranks: Ranks) -> None:
    n: int = module.out_features  # type: ignore[assignment]
    module.register_forward_hook(lambda _module, _args, output: ranks.gather(output, n))


def summed(module: nn.Module, ranks: Ranks) -> None:
    bias = getattr(module, "bias", None)
    if bias is None:
        module.register_forward_hook(lambda _module, _args, output: ranks.sum(output))
        return
    module.bias = None  # type: ignore[assignment]
    module.register_parameter("bias_of_sum", bias)
    module.register_forward_hook(
        lambda module, _args, output: ranks.sum(output).add_(module.bias_of_sum)
    )


def split_and_summed(module: nn.Module, ranks: Ranks) -> None:
    first, n = share(module.in_features, *_place(ranks))  # type: ignore[arg-type]
    module.register_forward_pre_hook(lambda _module, args: (args[0].narrow(-1, first, n),))
    summed(module, ranks)


def looked_up(module: nn.Module, ranks: Ranks) -> None:
    """An embedding: whoever has a token's vector gives it, all others give zeros."""
    first, n = share(module.num_embeddings, *_place(ranks))  # type: ignore[arg-type]

    def own(_module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        place = args[0] - first
        return (place.where((place >= 0) & (place < n), n),)

    if isinstance(module, nn.Embedding):
        module.padding_idx = None  # it may be beyond this share
    module.register_forward_pre_hook(own)
    summed(module, ranks)


@dataclass(frozen=True, slots=True)
class Style:
    cut: Cut = whole_on_each
    join: Join = as_it_is


# By transformers' names. Whatever concerns gradients alone is nothing here.
STYLES: Mapping[str, Style] = {
    "colwise": Style(by_output),
    "colwise_gather_output": Style(by_output, gathered),
    "colwise_rep": Style(by_output, gathered),
    "rowwise": Style(by_input, summed),
    "rowwise_split_input": Style(by_input, split_and_summed),
    "rowwise_rep": Style(by_input, split_and_summed),
    "packed_colwise": Style(by_halves_of_output),
    "packed_rowwise": Style(by_halves_of_input),
    "embedding_rowwise": Style(by_output_and_zeros, looked_up),
    "moe_tp_experts": Style(join=summed),
    "all_reduce": Style(join=summed),
    "replicated_with_grad_allreduce": Style(),
    "replicate": Style(),
    "local_params": Style(),
}
