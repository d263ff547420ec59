"""Inner loops between the matrix products of a step: LLVM IR for vectors of bfloat16.

Addresses are of bfloat16. What is behind the last whole vector is left to others. The compiler,
left to itself, takes one number after the other: it can't know that outputs are no inputs.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing import Signature
from numba.extending import intrinsic

from deployments.engine.kernels.cpu.simd import LANES, SHORT, STRICT, Code, Emitter


class _LayerEmitter(Emitter):
    def nearest(self, x: Code) -> Code:
        """Bits whose upper half is the nearest bfloat16, even ones between two; NaN stays NaN."""
        build = self.builder
        quiet = build.or_(build.bitcast(x, self.ints), self.all_ints(0x400000))
        return build.select(build.fcmp_unordered("uno", x, x), quiet, self._rounded(x))

    def rounded(self, x: Code) -> Code:
        """The nearest bfloat16 as float32."""
        bits = self.builder.and_(self.nearest(x), self.all_ints(0xFFFF0000))
        return self.builder.bitcast(bits, self.vector)

    def store_bfloat16(self, x: Code, address: Code) -> None:
        bits = self.builder.lshr(self.nearest(x), self.all_ints(16))
        self.store(self.builder.trunc(bits, ir.VectorType(SHORT, self.lanes)), address)

    def store_bfloat16_pairs(self, even: Code, odd: Code, address: Code) -> None:
        low = self.builder.lshr(self.nearest(even), self.all_ints(16))
        high = self.builder.and_(self.nearest(odd), self.all_ints(0xFFFF0000))
        self.store(self.builder.or_(low, high), address)

    def turned(self, own: Code, other: Code, cos: Code, sin: Code) -> Code:
        """A number of a pair, rotated. The first product is rounded to bfloat16, as torch's own
        operation is."""
        product = self.rounded(self.builder.fmul(own, cos, flags=STRICT))
        return self.fma(product, other, sin)


def _sum(emit: _LayerEmitter, x: Code, n: Code, of: Any) -> Code:
    """The sum of what `of` makes of each vector."""
    (total,) = emit.zero_registers(1)
    with emit.loop(emit.builder.udiv(n, emit.whole(LANES))) as loop:
        own = of(emit.load_bfloat16(emit.address(x, emit.times(loop.index, 2 * LANES))))
        emit.builder.store(emit.builder.fadd(emit.builder.load(total), own, flags=STRICT), total)
    return emit.reduce_add(emit.builder.load(total))


@intrinsic
def sum_vectors(typing: Code, x: Code, n: Code) -> tuple[Signature, Code]:
    """The sum of `n` numbers."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        emit, (x, n) = _LayerEmitter(builder, LANES), arguments
        return _sum(emit, x, n, lambda own: own)

    return types.float32(types.int64, types.int64), generate


@intrinsic
def sum_squares(typing: Code, x: Code, mean: Code, n: Code) -> tuple[Signature, Code]:
    """The sum of the squares of what `n` numbers are more than `mean`."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        emit, (x, mean, n) = _LayerEmitter(builder, LANES), arguments
        middle = emit.broadcast(mean)

        def square(own: Code) -> Code:
            less = builder.fsub(own, middle, flags=STRICT)
            return builder.fmul(less, less, flags=STRICT)

        return _sum(emit, x, n, square)

    return types.float32(types.int64, types.float32, types.int64), generate


@intrinsic
def write_normed(
    typing: Code,
    x: Code,
    mean: Code,
    scale: Code,
    weight: Code,
    plus: Code,
    residual: Code,
    out: Code,
    n: Code,
) -> tuple[Signature, Code]:
    """Writes `residual + (x - mean) * scale * (weight + plus)`; a residual of 0 is none. `out` may
    be one of the inputs."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        x, mean, scale, weight, plus, residual, out, n = arguments
        emit = _LayerEmitter(builder, LANES)
        middle, by, more = (emit.broadcast(each) for each in (mean, scale, plus))
        has_residual = builder.icmp_signed("!=", residual, emit.whole(0))
        with emit.loop(builder.udiv(n, emit.whole(LANES))) as loop:
            at = emit.times(loop.index, 2 * LANES)
            own = emit.load_bfloat16(emit.address(x, at))
            own = builder.fmul(builder.fsub(own, middle, flags=STRICT), by, flags=STRICT)
            factor = builder.fadd(emit.load_bfloat16(emit.address(weight, at)), more, flags=STRICT)
            own = builder.fmul(own, factor, flags=STRICT)
            with builder.if_else(has_residual) as (added, alone):
                with added:
                    other = emit.load_bfloat16(emit.address(residual, at))
                    total = builder.fadd(other, own, flags=STRICT)
                    emit.store_bfloat16(total, emit.address(out, at))
                with alone:
                    emit.store_bfloat16(own, emit.address(out, at))
        return context.get_dummy_value()

    words, number = types.int64, types.float32
    kinds = (words, number, number, words, number, words, words, words)
    return types.void(*kinds), generate


@intrinsic
def turn_halves(typing: Code, x: Code, cos: Code, sin: Code, half: Code) -> tuple[Signature, Code]:
    """Rotates `half` numbers of the first half of a head with those of its second one, in place. A
    rest of less than LANES is left."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        emit, (x, cos, sin, half) = _LayerEmitter(builder, LANES), arguments
        behind = emit.times(half, 2)
        with emit.loop(builder.udiv(half, emit.whole(LANES))) as loop:
            at = emit.times(loop.index, 2 * LANES)
            places = at, emit.address(at, behind)
            low, high = (emit.load_bfloat16(emit.address(x, place)) for place in places)
            for own, other, place in ((low, high, places[0]), (high, low, places[1])):
                by = (emit.load_bfloat16(emit.address(factor, place)) for factor in (cos, sin))
                emit.store_bfloat16(emit.turned(own, other, *by), emit.address(x, place))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def turn_pairs(typing: Code, x: Code, cos: Code, sin: Code, half: Code) -> tuple[Signature, Code]:
    """Rotates `half` pairs of neighbours, in place. A rest of less than LANES is left."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        emit, (x, cos, sin, half) = _LayerEmitter(builder, LANES), arguments
        with emit.loop(builder.udiv(half, emit.whole(LANES))) as loop:
            at = emit.times(loop.index, 4 * LANES)
            (even, odd), (even_cos, odd_cos), (even_sin, odd_sin) = (
                emit.load_bfloat16_pairs(emit.address(each, at)) for each in (x, cos, sin)
            )
            low = emit.turned(even, odd, even_cos, even_sin)
            high = emit.turned(odd, even, odd_cos, odd_sin)
            emit.store_bfloat16_pairs(low, high, emit.address(x, at))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def copy_bytes(typing: Code, source: Code, target: Code, n: Code) -> tuple[Signature, Code]:
    """Copies bytes between addresses that are apart."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        source, target, n = arguments
        byte = ir.IntType(8).as_pointer()
        pointers = builder.inttoptr(target, byte), builder.inttoptr(source, byte)
        cgutils.raw_memcpy(builder, *pointers, n, 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), generate
