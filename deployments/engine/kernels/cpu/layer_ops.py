"""Operations between the matrix products of a step, for bfloat16 tensors on a CPU.

The loops themselves are in layer_kernels.py and draft_kernels.py.
"""

from torch import Tensor

from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.cpu.dispatch import address_of, contiguous_rows, empty
from deployments.engine.kernels.cpu.draft_kernels import guess_kernel, join_kernel
from deployments.engine.kernels.cpu.layer_kernels import (
    gate_kernel,
    heads_kernel,
    norm_kernel,
    rotary_kernel,
    store_kernel,
    sum_kernel,
)
from deployments.engine.kernels.cpu.matmul_kernels import ACTIVATIONS
from deployments.engine.kernels.norms import HeadNorm
from deployments.engine.kernels.rotary import RotaryEmbedding

TOKENS_PER_TASK = 8  # of a norm
NUMBERS_PER_TASK = 8192  # of a sum


def norm(
    x: Tensor,
    weight: Tensor,
    epsilon: float,
    plus: float = 0.0,
    residual: Tensor | None = None,
    is_centered: bool = False,
) -> Tensor:
    """The RMSNorm of x [tokens, width] with `weight + plus`, or its LayerNorm if it is centered,
    and a `residual` of its shape that is added."""
    x = contiguous_rows(x)
    residual = None if residual is None else residual.contiguous()
    out = empty(x.shape, x.dtype)
    _norm(x, out, weight, epsilon, plus, residual, is_centered)
    return out


def rms_norm_(x: Tensor, weight: Tensor, epsilon: float, plus: float = 0.0) -> None:
    """The RMSNorm of x [tokens, width] in place. The numbers of a token lie side by side."""
    _norm(x, x, weight, epsilon, plus, None, False)


def _norm(
    x: Tensor,
    out: Tensor,
    weight: Tensor,
    epsilon: float,
    plus: float,
    residual: Tensor | None,
    is_centered: bool,
) -> None:
    tokens, width = x.shape
    norm_kernel().call(
        tokens * width,
        x=x.data_ptr(),
        weight=weight.data_ptr(),
        residual=address_of(residual),
        out=out.data_ptr(),
        x_stride=x.stride(0),
        out_stride=out.stride(0),
        tokens=tokens,
        width=width,
        tokens_per_task=TOKENS_PER_TASK,
        is_centered=is_centered,
        epsilon=epsilon,
        plus=plus,
    )


def add(x: Tensor, y: Tensor, factor: float) -> Tensor:
    """`x + factor * y`, of one shape."""
    return _sum(x, y, factor, None, NUMBERS_PER_TASK)


def add_gated(x: Tensor, y: Tensor, gates: Tensor) -> Tensor:
    """`x + sigmoid(gates) * y`. x, y: [tokens, width], gates: [tokens, 1]"""
    return _sum(x, y, 1.0, gates.contiguous(), x.shape[1])


def _sum(x: Tensor, y: Tensor, factor: float, gates: Tensor | None, per_task: int) -> Tensor:
    x, y = x.contiguous(), y.contiguous()
    out = empty(x.shape, x.dtype)
    sum_kernel().call(
        x.numel(),
        x=x.data_ptr(),
        y=y.data_ptr(),
        gates=address_of(gates),
        out=out.data_ptr(),
        n=x.numel(),
        per_task=per_task,
        factor=factor,
    )
    return out


def gated(gate_up: Tensor, activation: GateActivation) -> Tensor:
    """activation(gate) * up: [tokens, width] of [tokens, 2 * width], gates first."""
    gate_up = gate_up.contiguous()
    tokens, width = len(gate_up), gate_up.shape[1] // 2
    out = empty((tokens, width), gate_up.dtype)
    gate_kernel().call(
        gate_up.numel(),
        gate_up=gate_up.data_ptr(),
        out=out.data_ptr(),
        tokens=tokens,
        width=width,
        activation=ACTIVATIONS[activation],
    )
    return out


def copy_heads(x: Tensor, out: Tensor) -> None:
    """Copies x [tokens, heads, dim]; the numbers of a head lie side by side, in both."""
    _write_heads(x, None, out)


def gated_heads(x: Tensor, gates: Tensor) -> Tensor:
    """`x * sigmoid(gates)`, both [tokens, heads, dim] with the numbers of a head side by side."""
    out = empty(x.shape, x.dtype)
    _write_heads(x, gates, out)
    return out


def _write_heads(x: Tensor, gates: Tensor | None, out: Tensor) -> None:
    tokens, heads, dim = x.shape
    heads_kernel().call(
        x.numel(),
        x=x.data_ptr(),
        x_token_stride=x.stride(0),
        x_head_stride=x.stride(1),
        gates=address_of(gates),
        gates_token_stride=0 if gates is None else gates.stride(0),
        gates_head_stride=0 if gates is None else gates.stride(1),
        out=out.data_ptr(),
        out_token_stride=out.stride(0),
        out_head_stride=out.stride(1),
        tokens=tokens,
        heads=heads,
        dim=dim,
    )


def apply_rotary_(
    x: Tensor,  # [tokens, heads, dim], heads one behind the other
    rotary: RotaryEmbedding,  # contiguous
    norms: tuple[HeadNorm, HeadNorm] | None = None,  # of the first heads and of the others
    n_first: int = 0,
) -> None:
    """Rotary embedding of a head's first numbers in place, an RMSNorm of each head if there are
    any, and the scale of queries, which are the first heads."""
    first, others, epsilon, plus = 0, 0, 0.0, 0.0
    is_normed_last = norms is not None and norms[0].is_behind
    if norms is not None:
        first, others = norms[0].weight.data_ptr(), norms[1].weight.data_ptr()
        epsilon, plus = norms[0].epsilon, norms[0].plus
    tokens, heads, dim = x.shape
    rotary_kernel().call(
        tokens * heads * dim,
        x=x.data_ptr(),
        token_stride=x.stride(0),
        tokens=tokens,
        heads=heads,
        dim=dim,
        rotated=rotary.cos.shape[-1],
        is_interleaved=rotary.is_interleaved,
        cos=rotary.cos.data_ptr(),
        sin=rotary.sin.data_ptr(),
        first_weight=first,
        first_scale=address_of(rotary.query_scale),
        n_first=n_first,
        other_weight=others,
        is_normed_last=is_normed_last,
        epsilon=epsilon,
        plus=plus,
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


def join_states(
    token_ids: Tensor,  # [tokens] int64
    embeddings: Tensor,  # [vocab, width]
    states: Tensor,  # [states, width]
    rows: Tensor,  # [tokens] int64, the state that each token is read with
    norms: tuple[HeadNorm, HeadNorm],  # of embeddings and of states
    *,
    norms_residual: bool,
    given: Tensor
    | None = None,  # [tokens, width], row number -n of states is number n - 1 of these
    kept_at: Tensor | None = None,  # [tokens] int64, other rows of `states`, which become these
) -> tuple[Tensor, Tensor]:
    """Joins each token's embedding and a state, both normed, to what a draft head's layer reads
    [tokens, 2 * width]. Returns the residual, too: the state as it is or normed [tokens, width]. A
    token that is not in the vocabulary is read as token 0."""
    tokens, width = len(token_ids), embeddings.shape[1]
    out = empty((tokens, 2 * width), embeddings.dtype)
    residual = empty((tokens, width), embeddings.dtype)
    join_kernel().call(
        2 * tokens * width,
        token_ids=token_ids.data_ptr(),
        embeddings=embeddings.data_ptr(),
        vocab=len(embeddings),
        states=states.data_ptr(),
        given=address_of(given),
        rows=rows.data_ptr(),
        kept_at=address_of(kept_at),
        embedding_weight=norms[0].weight.data_ptr(),
        state_weight=norms[1].weight.data_ptr(),
        out=out.data_ptr(),
        residual=residual.data_ptr(),
        tokens=tokens,
        width=width,
        norms_residual=norms_residual,
        epsilon=norms[0].epsilon,
    )
    return out, residual


def guess_(
    token_ids: Tensor,  # [rows] int64
    logits: Tensor,  # [rows, n], contiguous
    target_ids: Tensor | None,  # [n] int64, the model's id of each; None: these are all
    temperatures: Tensor,  # [rows] float32; 0: the likeliest token
    keys: Tensor,  # [rows] int64, 64 random bits each
    scaled: Tensor,  # [rows, vocab] float32, which is overwritten
) -> None:
    """Writes the tokens that temperatures and noise give."""
    rows, vocab = scaled.shape
    guess_kernel().call(
        rows * vocab,
        logits=logits.data_ptr(),
        n_said=logits.shape[1],
        target_ids=address_of(target_ids),
        vocab=vocab,
        temperatures=temperatures.data_ptr(),
        keys=keys.data_ptr(),
        scaled=scaled.data_ptr(),
        token_ids=token_ids.data_ptr(),
        rows=rows,
    )
