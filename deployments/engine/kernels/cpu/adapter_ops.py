"""Products with packed matrices of LoRA adapters, for bfloat16 tensors on a CPU."""

from typing import NamedTuple

import torch
from torch import Tensor

from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.cpu.adapter_kernels import RANKS, activate_kernel, add_kernel
from deployments.engine.kernels.cpu.dispatch import BARRIER, empty
from deployments.engine.kernels.cpu.matmul_ir import FULL_TILE
from deployments.engine.kernels.cpu.matmul_kernels import ACTIVATIONS
from deployments.engine.kernels.cpu.simd import PACK

MAX_AHEAD_BYTES = 1 << 17  # of one slot


class Segments(NamedTuple):
    """Which tokens of a step have which adapter.

    tokens: int64 [n], indices of tokens, slot after slot
    table: int64 [segments, 3], of each slot, counted from 0, which of `tokens` it has: the first,
        and the one behind the last
    others: int64 [n_others], the tokens that are in no segment

    An empty segment ends the table, and -1 ends `others`. Both can so be as long for every step.
    """

    tokens: Tensor
    table: Tensor
    others: Tensor


def empty_segments(n_tokens: int, n_segments: int, n_others: int) -> Segments:
    """Memory for at most so many of each."""
    kind = torch.int64
    return Segments(
        torch.zeros(n_tokens, dtype=kind),
        torch.zeros(n_segments, 3, dtype=kind),
        torch.full((n_others,), -1, dtype=kind),
    )


class Ahead(NamedTuple):
    """The matrices that are multiplied with next, and so fetched while others compute."""

    address: int
    n_bytes: int  # of each slot, one behind the other


NOTHING_AHEAD = Ahead(0, 0)


class PackedAdapters(NamedTuple):
    """The adapters of one layer, or of several that read one input: the parts.

    a: bfloat16 [slots, parts, max rank / RANKS, in / 2, RANKS, 2]
    b: bfloat16 [slots, blocks, max rank / 2, PACK, 2]
    ranks: int64 [slots, parts]
    blocks: int64 [blocks, 3], of outputs: the part, the first output, how many there are
    """

    a: Tensor
    b: Tensor
    ranks: Tensor
    blocks: Tensor

    @property
    def max_rank(self) -> int:
        return self.a.shape[2] * RANKS

    @property
    def inputs(self) -> Ahead:
        """The matrices A; nothing where they are too much for the caches."""
        n_bytes = self.a[0].nbytes
        return Ahead(self.a.data_ptr(), n_bytes) if n_bytes <= MAX_AHEAD_BYTES else NOTHING_AHEAD


def empty_adapters(n_in: int, outs: list[slice], n_slots: int, max_rank: int) -> PackedAdapters:
    """`n_in` must be even, `max_rank` a multiple of RANKS."""
    blocks = [
        (part, first, min(PACK, outputs.stop - first))
        for part, outputs in enumerate(outs)
        for first in range(outputs.start, outputs.stop, PACK)
    ]
    kind = torch.bfloat16
    return PackedAdapters(
        torch.zeros(n_slots, len(outs), max_rank // RANKS, n_in // 2, RANKS, 2, dtype=kind),
        torch.zeros(n_slots, len(blocks), max_rank // 2, PACK, 2, dtype=kind),
        torch.zeros(n_slots, len(outs), dtype=torch.int64),
        torch.tensor(blocks),
    )


def put(adapters: PackedAdapters, slot: int, part: int, a: Tensor, b: Tensor) -> None:
    """Puts matrices [rank, in] and [outs, rank] behind the ranks that the slot has of a part."""
    first = int(adapters.ranks[slot, part])
    ranks = torch.arange(first, first + len(a))
    pairs = a.to(torch.bfloat16).reshape(len(a), -1, 2)
    adapters.a[slot, part][ranks // RANKS, :, ranks % RANKS] = pairs
    outs = torch.arange(len(b))[:, None]
    first_block = int((adapters.blocks[:, 0] < part).sum())
    blocks = adapters.b[slot]
    blocks[first_block + outs // PACK, ranks // 2, outs % PACK, ranks % 2] = b.to(torch.bfloat16)
    adapters.ranks[slot, part] = first + len(a)


def add_(
    adapters: PackedAdapters,
    out: Tensor,
    x: Tensor,
    segments: Segments,
    ahead: Ahead = NOTHING_AHEAD,
) -> None:
    """Adds B (A x) of x [tokens, in] to out [tokens, outputs]."""
    assert out.is_contiguous()
    x = x.contiguous()
    shrunk = _memory(adapters, segments)
    add_kernel().call(
        len(segments.tokens) * shrunk.shape[2] * (shrunk.shape[1] * x.shape[1] + out.shape[1]),
        x=x.data_ptr(),
        width=x.shape[1],
        tokens=segments.tokens.data_ptr(),
        segments=segments.table.data_ptr(),
        n_segments=len(segments.table),
        ranks=adapters.ranks.data_ptr(),
        n_parts=shrunk.shape[1],
        max_rank=shrunk.shape[2],
        a=adapters.a.data_ptr(),
        shrunk=shrunk.data_ptr(),
        barrier=BARRIER,
        blocks=adapters.blocks.data_ptr(),
        n_blocks=len(adapters.blocks),
        b=adapters.b.data_ptr(),
        out=out.data_ptr(),
        out_width=out.shape[1],
        ahead=ahead.address,
        ahead_bytes=ahead.n_bytes,
    )


def activate_(
    adapters: PackedAdapters,
    gate: Tensor,
    up: Tensor,
    x: Tensor,
    segments: Segments,
    activation: GateActivation,
    ahead: Ahead = NOTHING_AHEAD,
) -> None:
    """Puts activation(gate + B (A x)) * (up + B (A x)) in the place of gate [tokens, outputs of one
    of the two parts]."""
    assert gate.is_contiguous()
    assert up.is_contiguous()
    x = x.contiguous()
    shrunk = _memory(adapters, segments)
    activate_kernel().call(
        len(segments.tokens) * shrunk.shape[2] * 2 * (x.shape[1] + gate.shape[1])
        + 8 * gate.numel(),
        x=x.data_ptr(),
        width=x.shape[1],
        tokens=segments.tokens.data_ptr(),
        segments=segments.table.data_ptr(),
        n_segments=len(segments.table),
        others=segments.others.data_ptr(),
        n_others=len(segments.others),
        ranks=adapters.ranks.data_ptr(),
        max_rank=shrunk.shape[2],
        a=adapters.a.data_ptr(),
        shrunk=shrunk.data_ptr(),
        barrier=BARRIER,
        b=adapters.b.data_ptr(),
        gate=gate.data_ptr(),
        up=up.data_ptr(),
        activation=ACTIVATIONS[activation],
        out_width=gate.shape[1],
        ahead=ahead.address,
        ahead_bytes=ahead.n_bytes,
    )


def _memory(adapters: PackedAdapters, segments: Segments) -> Tensor:
    """Returns memory for A x: float32 [tokens and FULL_TILE more, parts, max rank]."""
    rows = len(segments.tokens) + FULL_TILE
    return empty((rows, adapters.a.shape[1], adapters.max_rank), torch.float32)
