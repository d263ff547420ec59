"""The gated delta rule on tensors; its loops are in delta_kernels.py."""

from dataclasses import dataclass

from torch import Tensor

from deployments.engine.kernels.cpu.dispatch import empty
from deployments.engine.kernels.cpu.states.delta_kernels import delta_kernel


@dataclass(frozen=True, slots=True)
class TokenSlots:
    """The rows of a step, and where the states of their tokens are.

    slots: int64 [2, tokens], the one that a row's first token reads, and the one that each token
        writes; -1: none.
    rows: int64 [2 + rows], how many rows there are, the first token of each, and the end.
    """

    slots: Tensor
    rows: Tensor


@dataclass(frozen=True, slots=True)
class DeltaInputs:
    """The products of a layer for each token, bfloat16 [tokens, k_heads, width of each]. All but
    `z`, `b` and `a` have one stride of tokens, and so have the last two."""

    q: Tensor
    k: Tensor
    v: Tensor  # of all heads of values that go with a head of keys
    z: Tensor
    b: Tensor
    a: Tensor


@dataclass(frozen=True, slots=True)
class DeltaWeights:
    conv: Tensor  # bfloat16 [channels, taps]
    decay: Tensor  # float32 [v_heads], below 0
    dt_bias: Tensor  # float32 [v_heads]
    norm: Tensor  # bfloat16 [v_dim]
    epsilon: float


def delta_rule(
    inputs: DeltaInputs,
    weights: DeltaWeights,
    tokens: TokenSlots,
    conv_states: Tensor,  # bfloat16 [slots, channels, taps]
    states: Tensor,  # float32 [slots, v_heads, k_dim, v_dim]
) -> Tensor:
    """The gated and normed results [tokens, v_heads * v_dim]. Both kinds of states are read and
    written."""
    n, k_heads, k_dim = inputs.q.shape
    _, v_heads, _, v_dim = states.shape
    out = empty((n, v_heads * v_dim), inputs.q.dtype)
    q, k, v, z, b, a = inputs.q, inputs.k, inputs.v, inputs.z, inputs.b, inputs.a
    delta_kernel().call(
        n * v_heads * k_dim * v_dim,
        q=q.data_ptr(),
        k=k.data_ptr(),
        v=v.data_ptr(),
        z=z.data_ptr(),
        b=b.data_ptr(),
        a=a.data_ptr(),
        token_stride=q.stride(0),
        z_token_stride=z.stride(0),
        ba_token_stride=b.stride(0),
        qk_head_stride=q.stride(1),
        v_head_stride=v.stride(1),
        z_head_stride=z.stride(1),
        ba_head_stride=b.stride(1),
        conv_weight=weights.conv.data_ptr(),
        decay=weights.decay.data_ptr(),
        dt_bias=weights.dt_bias.data_ptr(),
        norm_weight=weights.norm.data_ptr(),
        conv_states=conv_states.data_ptr(),
        states=states.data_ptr(),
        slots=tokens.slots.data_ptr(),
        tokens=tokens.slots.stride(0),
        rows=tokens.rows.data_ptr(),
        out=out.data_ptr(),
        k_heads=k_heads,
        group=v_heads // k_heads,
        k_dim=k_dim,
        v_dim=v_dim,
        taps=conv_states.shape[-1],
        epsilon=weights.epsilon,
    )
    return out
