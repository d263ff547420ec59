"""Inner loops of attention, written in vectors.

Numbers of heads and their dimension are literals: each pair of them has code of its own.
"""

import numpy as np
from numba import types
from numba.core.typing import Signature
from numba.extending import intrinsic

from deployments.engine.kernels.cpu.simd import HAS_AVX512, LANES, STRICT, Code, Emitter

SUM_REGISTERS = 16 if HAS_AVX512 else 8  # half of what the processor has
LOWEST = float(np.finfo(np.float32).min)


@intrinsic(prefer_literal=True)
def score_tokens(
    typing: Code,
    keys: Code,
    stride: Code,
    count: Code,
    ahead: Code,
    queries: Code,
    scores: Code,
    scores_stride: Code,
    group: Code,
    dim: Code,
) -> tuple[Signature, Code]:
    """scores[i, t] = queries[i] @ keys[t] for `count` tokens: queries [group, dim] of float32,
    keys [dim] of bfloat16 every `stride` bytes. What lies `ahead` of each is fetched."""
    n_group, n_dim = group.literal_value, dim.literal_value

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        keys, stride, count, ahead, queries, scores, scores_stride = arguments[:7]
        emit = Emitter(builder, _lanes(n_dim))
        parts = range(0, n_dim, emit.lanes)
        with emit.loop(count) as loop:
            key = emit.address(keys, builder.mul(loop.index, stride))
            emit.prefetch_range(emit.address(key, ahead), 2 * n_dim)
            values = [emit.load_bfloat16(emit.address(key, 2 * part)) for part in parts]
            for i in range(n_group):
                total = emit.const(0)
                for part, value in zip(parts, values, strict=True):
                    own = emit.load(emit.address(queries, 4 * (i * n_dim + part)), emit.vector)
                    total = emit.fma(total, value, own)
                row = emit.address(scores, emit.times(scores_stride, i))
                emit.store(emit.reduce_add(total), emit.address(row, emit.times(loop.index, 4)))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7, group, dim), generate


@intrinsic(prefer_literal=True)
def mix_tokens(
    typing: Code,
    values: Code,
    stride: Code,
    count: Code,
    ahead: Code,
    weights: Code,
    weights_stride: Code,
    sums: Code,
    group: Code,
    dim: Code,
) -> tuple[Signature, Code]:
    """sums[i] += weights[i, t] * values[t] over `count` tokens: sums [group, dim] of float32,
    values [dim] of bfloat16 every `stride` bytes. What lies `ahead` of each is fetched."""
    n_group, n_dim = group.literal_value, dim.literal_value

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        values, stride, count, ahead, weights, weights_stride, sums = arguments[:7]
        emit = Emitter(builder, _lanes(n_dim))
        parts = range(0, n_dim, emit.lanes)
        at_once = max(1, SUM_REGISTERS // len(parts))
        for first in range(0, n_group, at_once):
            heads = range(first, min(n_group, first + at_once))
            addresses = [
                emit.address(sums, 4 * (head * n_dim + part)) for head in heads for part in parts
            ]
            kept = emit.load_registers(addresses)
            with emit.loop(count) as loop:
                value = emit.address(values, builder.mul(loop.index, stride))
                if first == 0:
                    emit.prefetch_range(emit.address(value, ahead), 2 * n_dim)
                shares = []
                for head in heads:
                    row = emit.address(weights, emit.times(weights_stride, head))
                    shares.append(emit.load_broadcast(emit.address(row, emit.times(loop.index, 4))))
                for number, part in enumerate(parts):
                    wide = emit.load_bfloat16(emit.address(value, 2 * part))
                    for index, share in enumerate(shares):
                        register = kept[index * len(parts) + number]
                        builder.store(emit.fma(builder.load(register), wide, share), register)
            emit.store_registers(kept, addresses)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 7, group, dim), generate


class _Sight:
    """The keys that the queries of one vector see: there is a query in each lane."""

    def __init__(self, emit: Emitter, positions: Code, base: Code, window: Code) -> None:
        """`base` is the first key's position."""
        self._emit, self._base = emit, base
        self._last = emit.load_int32(positions)
        self._before = emit.builder.sub(self._last, emit.broadcast_int(window))

    def masked(self, index: Code, value: Code, otherwise: Code) -> Code:
        build = self._emit.builder
        key = self._emit.broadcast_int(build.add(self._base, index))
        is_known = build.icmp_signed("<=", key, self._last)
        is_near = build.icmp_signed(">", key, self._before)
        return build.select(build.and_(is_known, is_near), value, otherwise)


@intrinsic(prefer_literal=True)
def soften(
    typing: Code,
    scores: Code,
    count: Code,
    base: Code,
    window: Code,
    queries: Code,
    pack: Code,
    hides: Code,
) -> tuple[Signature, Code]:
    """Makes exp(score - highest) of scores [count, pack], keys by queries; 0 of keys that a query
    does not see, if anything `hides`. The first key's position is `base`.

    queries [4, pack]: of each its position (int32), the highest score so far, the sum so far, and
    what sums of before are to be multiplied with.
    """
    n_pack, is_partial = pack.literal_value, bool(hides.literal_value)

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        scores, count, base, window, queries = arguments[:5]
        emit = Emitter(builder, LANES)
        for part in range(0, n_pack, LANES):
            position, highest, total, fade = (
                emit.address(queries, 4 * (n_pack * of + part)) for of in range(4)
            )
            sight = _Sight(emit, position, base, window) if is_partial else None
            most, sums = emit.load_registers([highest, total])
            before = builder.load(most)
            with emit.loop(count) as loop:
                at = emit.address(scores, emit.times(loop.index, 4 * n_pack), 4 * part)
                score = emit.load(at, emit.vector)
                if sight is not None:
                    score = sight.masked(loop.index, score, emit.const(-np.inf))
                builder.store(emit.maximum(score, builder.load(most)), most)
            # Who has seen nothing yet has nothing that could fade.
            now = emit.maximum(builder.load(most), emit.const(LOWEST))
            fading = emit.exp(builder.fsub(before, now, flags=STRICT))
            builder.store(builder.fmul(builder.load(sums), fading, flags=STRICT), sums)
            with emit.loop(count) as loop:
                at = emit.address(scores, emit.times(loop.index, 4 * n_pack), 4 * part)
                share = emit.exp(builder.fsub(emit.load(at, emit.vector), now, flags=STRICT))
                if sight is not None:
                    share = sight.masked(loop.index, share, emit.const(0))
                emit.store(share, at)
                builder.store(builder.fadd(builder.load(sums), share, flags=STRICT), sums)
            emit.store_registers([most, sums], [highest, total])
            emit.store(fading, fade)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 5, pack, hides), generate


def _lanes(dim: int) -> int:
    """The widest vector that divides it."""
    return next(lanes for lanes in (16, 8, 4, 2, 1) if lanes <= LANES and dim % lanes == 0)
