"""Inputs as whole numbers of 8 or 16 bits, whose bytes are multiplied with codes."""

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing import Signature
from numba.extending import intrinsic

from deployments.engine.kernels.cpu.simd import LANES, STRICT, Code, Emitter


class _IntegerEmitter(Emitter):
    def reduce(self, name: str, register: Code) -> Code:
        kind = ir.FunctionType(ir.IntType(32), [self.ints])
        name = f"llvm.vector.reduce.{name}.v{self.lanes}i32"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [self.builder.load(register)])

    def to_integers(self, x: Code) -> Code:
        """The nearest whole numbers, even ones between two."""
        kind = ir.FunctionType(self.vector, [self.vector])
        name = f"llvm.roundeven.v{self.lanes}f32"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.fptosi(self.builder.call(function, [x]), self.ints)

    def store_bytes(self, values: Code, address: Code) -> None:
        kind = ir.VectorType(ir.IntType(8), self.lanes)
        self.store(self.builder.trunc(values, kind), address)


@intrinsic
def largest_bits(typing: Code, x: Code, n: Code) -> tuple[Signature, Code]:
    """The bits of the largest of `n` bfloat16 at an address, without its sign; `n` is a multiple of
    LANES. A NaN is larger than all numbers."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        emit, (x, n) = _IntegerEmitter(builder, LANES), arguments
        (most,) = emit.int_registers(1)
        with emit.loop(builder.udiv(n, emit.whole(LANES))) as loop:
            narrow = emit.load(
                emit.address(x, emit.times(loop.index, 2 * LANES)),
                ir.VectorType(ir.IntType(16), LANES),
            )
            bits = builder.and_(builder.zext(narrow, emit.ints), emit.all_ints(0x7FFF))
            before = builder.load(most)
            is_more = builder.icmp_signed(">", bits, before)
            builder.store(builder.select(is_more, bits, before), most)
        return builder.trunc(emit.reduce("smax", most), ir.IntType(16))

    return types.uint16(types.int64, types.int64), generate


@intrinsic
def store_integers(
    typing: Code, x: Code, high: Code, low: Code, by: Code, n: Code
) -> tuple[Signature, Code]:
    """Stores the bytes of `n` bfloat16 at an address times `by`, which then are whole numbers:
    256 times the `high` ones and the `low` ones. Returns their sum. `n` is a multiple of LANES."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        emit, (x, high, low, by, n) = _IntegerEmitter(builder, LANES), arguments
        (total,) = emit.int_registers(1)
        factor = emit.broadcast(by)
        with emit.loop(builder.udiv(n, emit.whole(LANES))) as loop:
            at = emit.times(loop.index, LANES)
            own = emit.load_bfloat16(emit.address(x, emit.times(at, 2)))
            whole = emit.to_integers(builder.fmul(own, factor, flags=STRICT))
            upper = builder.ashr(builder.add(whole, emit.all_ints(128)), emit.all_ints(8))
            lower = builder.sub(whole, builder.shl(upper, emit.all_ints(8)))
            emit.store_bytes(upper, emit.address(high, at))
            emit.store_bytes(lower, emit.address(low, at))
            builder.store(builder.add(builder.load(total), whole), total)
        return emit.reduce("add", total)

    return types.int32(types.int64, types.int64, types.int64, types.float32, types.int64), generate


@intrinsic
def store_bytes(typing: Code, x: Code, out: Code, by: Code, n: Code) -> tuple[Signature, Code]:
    """Stores `n` bfloat16 at an address times `by`, which then are whole numbers of a byte. Returns
    their sum. `n` is a multiple of LANES."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        emit, (x, out, by, n) = _IntegerEmitter(builder, LANES), arguments
        (total,) = emit.int_registers(1)
        factor = emit.broadcast(by)
        with emit.loop(builder.udiv(n, emit.whole(LANES))) as loop:
            at = emit.times(loop.index, LANES)
            own = emit.load_bfloat16(emit.address(x, emit.times(at, 2)))
            whole = emit.to_integers(builder.fmul(own, factor, flags=STRICT))
            emit.store_bytes(whole, emit.address(out, at))
            builder.store(builder.add(builder.load(total), whole), total)
        return emit.reduce("add", total)

    return types.int32(types.int64, types.int64, types.float32, types.int64), generate
