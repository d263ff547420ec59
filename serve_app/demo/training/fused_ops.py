"""Operations of the network with backward passes written out: few passes over memory.

On a CPU the elementwise work of a small model costs more than its products; autograd's own
decompositions double it.
"""

from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

MATMUL_TOKENS = 384  # rows up to this length train faster through plain products than through SDPA


class RmsNorm(Function):
    """x / rms(x), without a weight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
        scale = norm.square_().div_(x.shape[-1]).add_(eps).rsqrt_().to(x.dtype)
        y: Tensor = x * scale
        ctx.save_for_backward(y, scale)
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        y, scale = ctx.saved_tensors
        dot = torch.linalg.vecdot(grad, y).unsqueeze(-1).div_(-y.shape[-1])
        return torch.addcmul(grad, y, dot).mul_(scale), None


class Rotate(Function):
    """Rotary positions, in halves as Llama has them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotated(x, cos, sin, 1.0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotated(grad, cos, sin, -1.0), None, None


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    half = x.shape[-1] // 2
    out = x * torch.cat((cos, cos), -1)
    out[..., :half].addcmul_(x[..., half:], sin, value=-sign)
    out[..., half:].addcmul_(x[..., :half], sin, value=sign)
    return out


class TotalLoss(Function):
    """The sum of cross entropies, in float32."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor) -> Tensor:
        wide = logits.float()  # [tokens, vocabulary]
        total = wide.logsumexp(1, keepdim=True)
        ctx.save_for_backward(wide, total, targets)
        ctx.dtype = logits.dtype
        return (total - wide.gather(1, targets[:, None])).sum()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        wide, total, targets = ctx.saved_tensors
        slope = wide.sub_(total).exp_()  # in place: nothing else looks at the logits
        slope.scatter_add_(1, targets[:, None], torch.full_like(total, -1.0))
        return slope.mul_(grad).to(ctx.dtype), None


def rms_norm(x: Tensor, eps: float) -> Tensor:
    return cast(Tensor, RmsNorm.apply(x, eps))  # type: ignore[no-untyped-call]


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return cast(Tensor, Rotate.apply(x, cos, sin))  # type: ignore[no-untyped-call]


def total_loss(logits: Tensor, targets: Tensor) -> Tensor:
    return cast(Tensor, TotalLoss.apply(logits, targets))  # type: ignore[no-untyped-call]


def causal_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Computes the attention of whole rows. Padding is on the right, and no target looks at it.

    query: [rows, tokens, heads, dim]; key, value: [rows, tokens, kv heads, dim]
    """
    rows, tokens, heads, dim = query.shape
    if tokens > MATMUL_TOKENS or query.is_cuda:
        q, k, v = (each.transpose(1, 2) for each in (query, key, value))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return mixed.transpose(1, 2).reshape(rows, tokens, heads * dim)
    groups = rows * key.shape[2]
    q = query.transpose(1, 2).reshape(groups, -1, dim)
    k, v = (each.transpose(1, 2).reshape(groups, tokens, dim) for each in (key, value))
    future = torch.full((tokens, tokens), -torch.inf, dtype=q.dtype).triu(1)
    mask = future.repeat(heads // key.shape[2], 1)
    scores = torch.baddbmm(mask, q, k.transpose(1, 2), alpha=dim**-0.5)
    mixed = torch.bmm(scores.softmax(-1), v).view(rows, heads, tokens, dim)
    return mixed.transpose(1, 2).reshape(rows, tokens, heads * dim)
