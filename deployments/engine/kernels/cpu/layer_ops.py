"""Operations between the matrix products of a step, for bfloat16 tensors on a CPU.

The loops themselves are in layer_kernels.py.
"""

from torch import Tensor

from deployments.engine.kernels.cpu.dispatch import contiguous_rows, empty
from deployments.engine.kernels.cpu.layer_kernels import norm_kernel, rotary_kernel, store_kernel
from deployments.engine.kernels.rotary import HeadNorm

TOKENS_PER_TASK = 8  # of a norm


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """[tokens, width]"""
    x = x.contiguous()
    out = empty(x.shape, x.dtype)
    tokens, width = x.shape
    norm_kernel().call(
        tokens * width,
        x=x.data_ptr(),
        weight=weight.data_ptr(),
        out=out.data_ptr(),
        tokens=tokens,
        width=width,
        tokens_per_task=TOKENS_PER_TASK,
        epsilon=epsilon,
    )
    return out


def apply_rotary_(
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
    tokens, heads, dim = x.shape
    rotary_kernel().call(
        tokens * heads * dim,
        x=x.data_ptr(),
        token_stride=x.stride(0),
        tokens=tokens,
        heads=heads,
        dim=dim,
        cos=cos.data_ptr(),
        sin=sin.data_ptr(),
        first_weight=first,
        n_first=n_first,
        other_weight=others,
        epsilon=epsilon,
    )


def store(k: Tensor, v: Tensor, slots: Tensor, keys: Tensor, values: Tensor) -> None:
    """Copies new keys and values [tokens, heads, dim] to their slots of one layer's cache.

    Raises ValueError for what does not fit into it.
    """
    fits = k.dtype is v.dtype is keys.dtype
    if not (fits and k.shape == v.shape == (len(slots), *keys.shape[2:])):
        raise ValueError(f"{k.dtype} {k.shape}, {v.dtype} {v.shape} for pages of {keys.shape[2:]}")
    k, v = contiguous_rows(k), contiguous_rows(v)
    tokens, heads, dim = k.shape
    store_kernel().call(
        tokens * heads * dim,
        k=k.data_ptr(),
        k_token_stride=k.stride(0),
        k_head_stride=k.stride(1),
        v=v.data_ptr(),
        v_token_stride=v.stride(0),
        v_head_stride=v.stride(1),
        slots=slots.data_ptr(),
        k_pages=keys.data_ptr(),
        v_pages=values.data_ptr(),
        tokens=tokens,
        heads=heads,
        dim=dim,
    )
