"""What stands between the matrix products of a step, for bfloat16 tensors on a CPU.

The loops themselves are in layer_kernels.py.
"""

from torch import Tensor

from deployments.engine.kernels.cpu.dispatch import contiguous_rows, empty
from deployments.engine.kernels.cpu.layer_kernels import norm_kernel, store_kernel, turn_kernel
from deployments.engine.kernels.rotary import HeadNorm

BLOCK_TOKENS = 8  # that one task of a norm takes


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """[tokens, width]"""
    x = x.contiguous()
    out = empty(x.shape, x.dtype)
    places = x.data_ptr(), weight.data_ptr(), out.data_ptr()
    norm_kernel()(x.numel(), *places, *x.shape, BLOCK_TOKENS, epsilon)
    return out


def turn(
    x: Tensor,  # [tokens, heads, dim], heads one behind the other
    cos: Tensor,  # [tokens, 1, dim], contiguous
    sin: Tensor,  # the same, negative in its first half
    norms: tuple[HeadNorm, HeadNorm] | None = None,  # of the first heads and of the others
    n_first: int = 0,
) -> None:
    """Rotary embedding in place, behind an RMSNorm of each head if there are any."""
    first, others, epsilon = 0, 0, 0.0
    if norms is not None:
        first, others = norms[0].weight.data_ptr(), norms[1].weight.data_ptr()
        epsilon = norms[0].epsilon
    turn_kernel()(
        x.numel(),
        *(x.data_ptr(), x.stride(0), *x.shape, cos.data_ptr(), sin.data_ptr()),
        *(first, n_first, others, epsilon),
    )


def store(k: Tensor, v: Tensor, slots: Tensor, keys: Tensor, values: Tensor) -> None:
    """Copies new keys and values [tokens, heads, dim] to their slots of one layer's cache.

    Raises ValueError for what does not fit into it.
    """
    fits = k.dtype is v.dtype is keys.dtype
    if not (fits and k.shape == v.shape == (len(slots), *keys.shape[2:])):
        raise ValueError(f"{k.dtype} {k.shape}, {v.dtype} {v.shape} for pages of {keys.shape[2:]}")
    k, v = contiguous_rows(k), contiguous_rows(v)
    strides = (k.data_ptr(), *k.stride()[:2]), (v.data_ptr(), *v.stride()[:2])
    places = slots.data_ptr(), keys.data_ptr(), values.data_ptr()
    store_kernel()(k.numel(), *strides[0], *strides[1], *places, *k.shape)
