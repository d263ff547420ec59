"""Inner loops between the matrix products of a step: LLVM IR for vectors of bfloat16.

Addresses are of bfloat16, and numbers of these are multiples of LANES. The compiler, left to
itself, takes one number after the other: it can't know that outputs are no inputs.
"""

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing import Signature
from numba.extending import intrinsic

from deployments.engine.kernels.cpu.simd import LANES, SHORT, STRICT, Code, Emitter


class _LayerEmitter(Emitter):
    def broadcast(self, value: Code) -> Code:
        """A float32 in all lanes."""
        nothing = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(first, first, ir.Constant(self.ints, None))

    def rounded(self, x: Code) -> Code:
        """The nearest bfloat16, even ones between two, as float32; NaN stays NaN."""
        build = self.builder
        bits = build.and_(self._rounded(x), self.all_ints(0xFFFF0000))
        return build.select(build.fcmp_unordered("uno", x, x), x, build.bitcast(bits, self.vector))

    def store_bfloat16(self, x: Code, address: Code) -> None:
        """Stores x as the nearest bfloat16; NaN stays NaN."""
        build = self.builder
        bits = build.lshr(build.bitcast(x, self.ints), self.all_ints(16))
        quiet = build.or_(bits, self.all_ints(0x40))
        near = build.lshr(self._rounded(x), self.all_ints(16))
        kept = build.select(build.fcmp_unordered("uno", x, x), quiet, near)
        self.store(build.trunc(kept, ir.VectorType(SHORT, self.lanes)), address)


def _sum(emit: _LayerEmitter, x: Code, n: Code, of: Any) -> Code:
    """The sum of what `of` makes of each vector."""
    (total,) = emit.zero_registers(1)
    with emit.loop(emit.builder.udiv(n, emit.whole(LANES))) as loop:
        own = of(emit.load_bfloat16(emit.address(x, emit.times(loop.index, 2 * LANES))))
        emit.builder.store(emit.builder.fadd(emit.builder.load(total), own, flags=STRICT), total)
    return emit.reduce_add(emit.builder.load(total))


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
    """Rotates the numbers of the first half of a head with those of its second one, in place. The
    first product is rounded to bfloat16, as torch's own operation is."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        emit, (x, cos, sin, half) = _LayerEmitter(builder, LANES), arguments
        behind = emit.times(half, 2)
        with emit.loop(builder.udiv(half, emit.whole(LANES))) as loop:
            at = emit.times(loop.index, 2 * LANES)
            places = at, emit.address(at, behind)
            low, high = (emit.load_bfloat16(emit.address(x, place)) for place in places)
            for own, other, place in ((low, high, places[0]), (high, low, places[1])):
                first = emit.load_bfloat16(emit.address(cos, place))
                second = emit.load_bfloat16(emit.address(sin, place))
                product = emit.rounded(builder.fmul(own, first, flags=STRICT))
                emit.store_bfloat16(emit.fma(product, other, second), emit.address(x, place))
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
