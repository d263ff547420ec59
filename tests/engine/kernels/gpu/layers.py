"""Errors of the kernels between a layer's products, on whatever device."""

from dataclasses import dataclass

import torch
from torch import Tensor

from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.rotary import RotaryEmbedding
from kv.layout import alike
from kv.storage import Storage


@dataclass(frozen=True)
class Joined:
    """New tokens' queries, keys and values, and where these go; the last token is of no row."""

    tokens: int = 5
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 16
    normed: bool = False
    rotated: int | None = None  # numbers of a head; None: all
    is_interleaved: bool = False
    norms_behind: bool = False
    scaled: bool = False
    plus: float = 0.0
    dtype: str = "float32"
    fp8_pages: bool = False


@dataclass
class HeadNorm:
    weight: Tensor
    epsilon: float = 1e-5
    plus: float = 0.0
    is_behind: bool = False


def turned_and_stored(case: Joined, device: str = "cpu") -> dict[str, float]:
    """Errors of queries, keys and values, and how many other numbers of the pages were written."""
    from deployments.engine.kernels.gpu.layer_ops import rotary_and_store

    dtype = getattr(torch, case.dtype)
    kept = torch.float8_e4m3fn if case.fp8_pages else dtype
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype).to(device)

    qkv = random(case.tokens, case.heads + 2 * case.kv_heads, case.head_dim)
    cos, sin = (random(case.tokens, 1, case.rotated or case.head_dim) for _ in range(2))
    scale = random(case.tokens, 1, 1) if case.scaled else None
    turn = RotaryEmbedding(cos, sin, case.is_interleaved, scale)
    norms = (
        HeadNorm(random(case.head_dim), plus=case.plus, is_behind=case.norms_behind),
        HeadNorm(random(case.head_dim), plus=case.plus, is_behind=case.norms_behind),
    )
    storage = Storage(alike(1, case.kv_heads, case.head_dim), 4, 4, dtype=kept, device=device)
    for kept_pages in storage.layers[0]:
        kept_pages.copy_(torch.full(kept_pages.shape, 7.0))
    slots = torch.tensor([13, 2, 7, 0, *range(8, 16)])[: case.tokens].to(device)
    stored = slots // 4 * storage.page_stride[0] + slots % 4
    stored[-1] = -1
    pages = storage.layers[0]
    used = norms if case.normed else None
    q = rotary_and_store(qkv, turn, used, *pages, stored, (1.0, 1.0))
    parts = torch.split(qkv.float(), [case.heads, case.kv_heads, case.kv_heads], 1)
    queries, keys = (_turned(case, parts[i], norms[i], turn) for i in range(2))
    if turn.query_scale is not None:
        queries *= turn.query_scale.float()
    found = [tensor.flatten(0, 1).float() for tensor in pages]
    rest = [i for i in range(16) if i not in slots[:-1].tolist()]
    return {
        "queries": _error(q, queries),
        "keys": _error(found[0][slots[:-1]], keys[:-1].to(kept)),
        "values": _error(found[1][slots[:-1]], parts[2][:-1].to(kept)),
        "others": float(sum((tensor[rest] != 7).sum() for tensor in found)),
    }


def _turned(case: Joined, x: Tensor, norm: HeadNorm, turn: RotaryEmbedding) -> Tensor:
    def normed(x: Tensor) -> Tensor:
        weight = norm.weight.float() + norm.plus
        return torch.nn.functional.rms_norm(x, weight.shape, weight, norm.epsilon)

    x = normed(x) if case.normed and not norm.is_behind else x
    x = turn.map(Tensor.float).apply_(x.clone())
    return normed(x) if case.normed and norm.is_behind else x


def normed(tokens: int, width: int, dtype: str, device: str = "cpu") -> float:
    """The error of norms of whole rows, and of some in place."""
    from deployments.engine.kernels.gpu.layer_ops import norm, rms_norm_

    generator = torch.Generator().manual_seed(0)
    x, weight = (
        (3 * torch.randn(*shape, generator=generator)).to(getattr(torch, dtype)).to(device)
        for shape in ((tokens, width), (width,))
    )
    expected = torch.nn.functional.rms_norm(x.float(), (width,), weight.float(), 1e-5)
    more = torch.nn.functional.rms_norm(x.float(), (width,), weight.float() + 1, 1e-5) + x.float()
    centered = torch.nn.functional.layer_norm(x.float(), (width,), weight.float(), None, 1e-5)
    beside = torch.cat([x, x, x], 1)
    rms_norm_(beside[:, width : 2 * width], weight, 1e-5)
    return max(
        _error(norm(x, weight, 1e-5), expected),
        _error(norm(x, weight, 1e-5, 1.0, residual=x), more),
        _error(norm(x, weight, 1e-5, is_centered=True), centered),
        _error(beside, torch.cat([x.float(), expected, x.float()], 1)),
    )


def gated(tokens: int, width: int, dtype: str, device: str = "cpu") -> float:
    """The error of what a gated feed-forward has between its products."""
    from deployments.engine.kernels.gpu.layer_ops import gated as gated_op

    generator = torch.Generator().manual_seed(0)
    both = 3 * torch.randn(tokens, 2 * width, generator=generator)
    both = both.to(getattr(torch, dtype)).to(device)
    gate, up = both.float().chunk(2, 1)
    return max(
        _error(gated_op(both, activation), activation(gate) * up) for activation in GateActivation
    )


def made_float8(tokens: int, width: int, dtype: str, device: str = "cpu") -> tuple[float, float]:
    """Errors of the numbers, and of what they are multiplied by; the last row is all zeros."""
    from deployments.engine.kernels.gpu.layer_ops import to_float8

    rows = torch.randn(tokens, width, generator=torch.Generator().manual_seed(2))
    rows = (rows * torch.arange(tokens).flip(0)[:, None]).to(getattr(torch, dtype)).to(device)
    small, scales = to_float8(rows, 1e-12)
    expected = rows.float().abs().amax(1, keepdim=True).clamp(min=1e-12) / 448
    return _error(small.float() * scales, rows), _error(scales, expected)


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())
