"""Experts and routers by the GPU's kernels beside transformers' own, on whatever device."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssConfig, GptOssExperts
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHConfig, NemotronHExperts
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeConfig, Qwen3MoeExperts

from deployments.engine.forward.products import router as routers
from deployments.engine.kernels.experts import Routing

HIDDEN, WIDTH = 48, 40  # no multiples of what programs take
K = 2


@dataclass(frozen=True)
class Sparse:
    """Experts of a layer: how many, and the tokens that are sent to them."""

    family: str = "qwen3"
    tokens: int = 6
    n_experts: int = 4
    dtype: str = "float32"
    only: int | None = None  # the expert that all tokens are sent to


def experts_of(case: Sparse) -> Any:
    """A layer's experts, in float32, with random weights of the case's type."""
    n, k = case.n_experts, K
    made: dict[str, tuple[type[nn.Module], PretrainedConfig]] = {
        "qwen3": (
            Qwen3MoeExperts,
            Qwen3MoeConfig(
                num_experts=n,
                hidden_size=HIDDEN,
                moe_intermediate_size=WIDTH,
                num_experts_per_tok=k,
            ),
        ),
        "gpt_oss": (
            GptOssExperts,
            GptOssConfig(num_local_experts=n, hidden_size=HIDDEN, intermediate_size=WIDTH),
        ),
        "nemotron_h": (
            NemotronHExperts,
            NemotronHConfig(n_routed_experts=n, hidden_size=HIDDEN, moe_intermediate_size=WIDTH),
        ),
    }
    kind, config = made[case.family]
    torch.manual_seed(0)
    experts = kind(config)
    for weight in experts.parameters():
        numbers = torch.randn(weight.shape) * (2 if weight.dim() == 2 else 3 * HIDDEN**-0.5)
        weight.data = numbers.to(getattr(torch, case.dtype)).float()
    return experts


def taken(case: Sparse, device: str = "cpu") -> nn.Module:
    """The experts of a case, as our kernels compute them on a device."""
    from deployments.engine.forward.products.plain_experts import known_activation, take_experts

    experts = experts_of(case).to(getattr(torch, case.dtype))
    activation = known_activation(experts)
    assert activation is not None
    take_experts(experts, activation, lambda weight: None)
    computed: nn.Module = experts.routed.to(device)
    return computed


@torch.inference_mode()
def answered(case: Sparse, device: str = "cpu") -> tuple[float, list[int]]:
    """The error of experts, of which one token has one less; and which of some tokens have other
    bits with fewer tokens."""
    dtype: torch.dtype = getattr(torch, case.dtype)
    compute, experts = taken(case, device), experts_of(case)
    x = torch.randn(case.tokens, HIDDEN).to(dtype)
    # The last expert is chosen by none.
    index = torch.rand(case.tokens, case.n_experts - 1).topk(K).indices
    if case.only is not None:
        index[:] = torch.tensor([case.only, case.n_experts])
    index[0, 1] = case.n_experts  # which is none
    weights, is_none = torch.rand(case.tokens, K), index == case.n_experts
    plain = type(experts).forward.__wrapped__
    some = index.masked_fill(is_none, 0), weights.masked_fill(is_none, 0)
    expected = plain(experts, x.float(), *some)
    x, index, weights = x.to(device), index.to(device), weights.to(device)
    found = compute(x, index, weights)
    fewer = [(n, compute(x[:n], index[:n], weights[:n])) for n in (1, 3) if n < case.tokens]
    differing = [n for n, part in fewer if not torch.equal(part, found[:n])]
    return _error(found, expected), differing


def wrong_blocks(tokens: int, k: int, n_experts: int, device: str = "cpu") -> list[str]:
    """The differences of blocks from those that torch makes by sorting."""
    from deployments.engine.kernels.gpu.experts.grouping_ops import chosen_experts

    random = torch.Generator().manual_seed(0)
    index = torch.randint(-1, n_experts + 1, (tokens, k), generator=random)
    found = chosen_experts(index.to(device), n_experts, 8)
    own = torch.where((index >= 0) & (index < n_experts), index, n_experts).flatten()
    ascending, places = own.sort(stable=True)
    blocks = []
    for expert in range(n_experts):
        first, n = int((ascending < expert).sum()), int((ascending == expert).sum())
        blocks += [
            [expert, begin, min(begin + 8, first + n)] for begin in range(first, first + n, 8)
        ]
    n = len(blocks)
    both = torch.cat([found.experts[:, None], found.begins], 1).cpu()
    same = {
        "places": torch.equal(found.places.cpu(), places),
        "blocks": both[:n].tolist() == blocks,
        "empty": bool((found.experts[n:] < 0).all()),
    }
    return [name for name, is_same in same.items() if not is_same]


def wrong_routes(
    routing: Routing, n_experts: int, has_correction: bool, tokens: int, device: str = "cpu"
) -> list[str]:
    """How choices by logits differ from torch's. The first token's logits are all the same, so that
    the experts of the lowest numbers are chosen; the second one's nearly tie."""
    from deployments.engine.kernels.gpu.experts.router_ops import choose

    random = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(tokens, n_experts, generator=random)
    correction = torch.randn(n_experts, generator=random) / 10 if has_correction else None
    if has_correction:
        logits[:, -1] = -60.0  # its score alone would be 0
    logits[0] = 0.0
    logits[1] = 1 + torch.randperm(n_experts, generator=random) * 2.0**-20
    index, weights = routers.choose(logits[1:], correction, routing)
    on_device = None if correction is None else correction.to(device)
    found, shares = choose(logits.to(device), on_device, routing)
    lowest = sorted(found[0].tolist()) == list(range(routing.k))
    same = {
        "experts": torch.equal(found[1:].cpu(), index),
        "weights": bool(torch.allclose(shares[1:].cpu(), weights, rtol=1e-5, atol=1e-7)),
        "ties": has_correction or lowest,
    }
    return [name for name, is_same in same.items() if not is_same]


@contextmanager
def launches() -> Iterator[list[str]]:
    """The names of the kernels that are launched meanwhile."""
    from triton.runtime.interpreter import InterpretedFunction

    found: list[str] = []
    run = InterpretedFunction.run

    def counted(function: Any, *args: Any, **kwargs: Any) -> Any:
        found.append(function.fn.__name__)
        return run(function, *args, **kwargs)

    with patch.object(InterpretedFunction, "run", counted):
        yield found


def launched(case: Sparse) -> list[str]:
    """The kernels of a router and experts."""
    with launches() as found:
        answered(case)
    return found


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found.cpu().float() - expected).norm() / expected.norm())
