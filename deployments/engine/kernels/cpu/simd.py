"""Operations that numba can't express: atomic counters, calls by address, bit casts, vectors."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.core.registry import cpu_target
from numba.core.typing import Signature
from numba.extending import intrinsic

# What is compiled for, which NUMBA_CPU_NAME and NUMBA_CPU_FEATURES may say.
FEATURES = cpu_target.target_context.codegen().magic_tuple()[2].split(",")
HAS_FMA, HAS_F16C, HAS_AVX512 = ("+fma" in FEATURES, "+f16c" in FEATURES, "+avx512f" in FEATURES)
# Whether vectors of pairs of bfloat16 are multiplied, and bytes looked up in tables of 128 of them.
HAS_PAIR_PRODUCTS = HAS_AVX512 and {"+avx512bw", "+avx512bf16", "+avx512vbmi"} <= set(FEATURES)
# Whether vectors of 4 bytes are multiplied, and summed as int32.
HAS_BYTE_PRODUCTS = ({"+avx512bw", "+avx512vnni"} if HAS_AVX512 else {"+avxvnni"}) <= set(FEATURES)
LANES = 16 if HAS_AVX512 else 8  # of a vector of float32
PACK = 2 * LANES  # outputs of a block of packed weights
# Rows that are multiplied at once: as many as keep their sums, two vectors for each row, in
# registers, and fewer at the end.
TILE_ROWS = (8, 4, 2, 1) if HAS_AVX512 else (4, 3, 2, 1)
CACHE_LINE = 64  # bytes
PREFETCH_BYTES = 4096  # how far ahead weights are fetched that stay in caches
LOG2_E = np.float32(1.4426950408889634)
# exp2 on [0, 1), a polynomial of least error among those that are 1 at 0; see `exp`.
C0, C1, C2, C3, C4, C5 = (
    np.float32(c) for c in (1.0, 0.69315131, 0.24016448, 0.055799818, 0.0090171644, 0.0018670667)
)

Code = Any  # what the code generator of llvmlite takes and gives
WORD, NUMBER, SHORT = ir.IntType(64), ir.FloatType(), ir.IntType(16)
FUSED = ("contract",)  # a product and a sum in one operation
# Each operation is rounded by itself. numba lets the compiler fuse or reorder operations without
# flags, and it then fuses them in one kind of a loop and not in another.
STRICT = ("nsz",)


@intrinsic
def next_task(typing: Code, address: Code) -> tuple[Signature, Code]:
    """The number at the address, which is one more afterwards, in one piece."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        pointer = builder.inttoptr(arguments[0], WORD.as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(WORD, 1), "monotonic")

    return types.int64(types.int64), generate


@intrinsic
def fetch(typing: Code, address: Code) -> tuple[Signature, Code]:
    """Fetches the cache line of an address, which goes on while others compute."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        Emitter(builder, LANES).prefetch_range(arguments[0], 1)
        return context.get_dummy_value()

    return types.void(types.int64), generate


@intrinsic
def call(typing: Code, function: Code, argument: Code) -> tuple[Signature, Code]:
    """Calls what lies at an address, with one word."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        kind = ir.FunctionType(ir.VoidType(), [WORD]).as_pointer()
        builder.call(builder.inttoptr(arguments[0], kind), [arguments[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _cast(to: Code, of: Code, width: Callable[[], Code]) -> Code:
    @intrinsic
    def cast(typing: Code, value: Code) -> tuple[Signature, Code]:
        def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
            return builder.bitcast(arguments[0], width())

        return to(of), generate

    return cast


def pointer_to(to: Code) -> Code:
    @intrinsic
    def pointer(typing: Code, address: Code) -> tuple[Signature, Code]:
        def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
            return builder.inttoptr(arguments[0], context.get_value_type(types.CPointer(to)))

        return types.CPointer(to)(types.int64), generate

    return pointer


as_float32 = _cast(types.float32, types.uint32, ir.FloatType)
as_bits = _cast(types.uint32, types.float32, lambda: ir.IntType(32))
as_float64 = _cast(types.float64, types.uint64, ir.DoubleType)
as_bits64 = _cast(types.uint64, types.float64, lambda: WORD)
at_u8, at_i8 = pointer_to(types.uint8), pointer_to(types.int8)
at_u16, at_i32 = pointer_to(types.uint16), pointer_to(types.int32)
at_u32, at_u64 = pointer_to(types.uint32), pointer_to(types.uint64)
at_i64, at_f32 = pointer_to(types.int64), pointer_to(types.float32)
at_f64 = pointer_to(types.float64)


class Emitter:
    """Emits LLVM IR for vectors of float32; offsets are in bytes.

    Inner loops are written in it because the compiler, left to itself, neither keeps sums in
    registers nor prefetches far enough. Products of few rows wait for memory alone: one core read a
    large matrix at 11 GB/s with the compiler's loop, and at 20 GB/s with this one.
    """

    def __init__(self, builder: Code, lanes: int) -> None:
        self.builder = builder
        self.lanes = lanes
        self.vector = ir.VectorType(NUMBER, lanes)
        self.ints = ir.VectorType(ir.IntType(32), lanes)

    def address(self, base: Code, *offsets: Code) -> Code:
        """The address at these offsets; a Python integer becomes a constant."""
        for offset in offsets:
            by = ir.Constant(WORD, offset) if isinstance(offset, int) else offset
            base = self.builder.add(base, by)
        return base

    def whole(self, value: int) -> Code:
        return ir.Constant(WORD, value)

    def times(self, value: Code, factor: int) -> Code:
        return self.builder.mul(value, ir.Constant(WORD, factor))

    def half(self, value: Code) -> Code:
        return self.over(value, 2)

    def over(self, value: Code, divisor: int) -> Code:
        """The quotient of numbers that are not below 0, rounded down; `rest` is what is left."""
        return self.builder.udiv(value, ir.Constant(WORD, divisor))

    def rest(self, value: Code, divisor: int) -> Code:
        return self.builder.urem(value, ir.Constant(WORD, divisor))

    def loop(self, count: Code) -> AbstractContextManager[Code]:
        loop: AbstractContextManager[Code] = cgutils.for_range(self.builder, count)
        return loop

    def load(self, address: Code, kind: Code) -> Code:
        return self.builder.load(self.builder.inttoptr(address, kind.as_pointer()), align=2)

    def store(self, value: Code, address: Code) -> None:
        pointer = self.builder.inttoptr(address, value.type.as_pointer())
        self.builder.store(value, pointer, align=4)

    def prefetch_range(self, address: Code, n_bytes: int, stays: Code | None = None) -> None:
        """Fetches the lines from an address on into the caches. They drive out what others need,
        but for those that don't stay there: `stays` is not 0, or None."""
        if stays is None:
            self._prefetch_range(address, n_bytes, 3)
            return
        is_kept = self.builder.icmp_signed("!=", stays, self.whole(0))
        with self.builder.if_else(is_kept) as (kept, passing):
            with kept:
                self._prefetch_range(address, n_bytes, 3)
            with passing:
                self._prefetch_range(address, n_bytes, 0)

    def _prefetch_range(self, address: Code, n_bytes: int, locality: int) -> None:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte] + [ir.IntType(32)] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        options = [ir.Constant(ir.IntType(32), option) for option in (0, locality, 1)]
        for offset in range(0, n_bytes, CACHE_LINE):
            line = self.builder.inttoptr(self.address(address, offset), byte)
            self.builder.call(function, [line, *options])

    def load_bfloat16(self, address: Code) -> Code:
        """Loads as many bfloat16 as there are lanes, as float32."""
        narrow = self.load(address, ir.VectorType(SHORT, self.lanes))
        bits = self.builder.shl(self.builder.zext(narrow, self.ints), self.all_ints(16))
        return self.builder.bitcast(bits, self.vector)

    def load_bfloat16_pairs(self, address: Code) -> tuple[Code, Code]:
        """Loads twice as many bfloat16 as there are lanes: the even ones and the odd ones."""
        two = self.load(address, self.ints)
        even = self.builder.shl(two, self.all_ints(16))
        odd = self.builder.and_(two, self.all_ints(0xFFFF0000))
        return self.builder.bitcast(even, self.vector), self.builder.bitcast(odd, self.vector)

    def load_int8(self, address: Code) -> Code:
        """Loads as many int8 as there are lanes, as float32."""
        narrow = self.load(address, ir.VectorType(ir.IntType(8), self.lanes))
        return self.builder.sitofp(self.builder.sext(narrow, self.ints), self.vector)

    def bfloat16_pairs(self, even: Code, odd: Code) -> Code:
        """Rounds two vectors to bfloat16, and lays each pair side by side in 32 bits."""
        low = self.builder.lshr(self._rounded(even), self.all_ints(16))
        high = self.builder.and_(self._rounded(odd), self.all_ints(0xFFFF0000))
        return self.builder.or_(low, high)

    def _rounded(self, vector: Code) -> Code:
        """Bits whose upper half is the nearest bfloat16, the even one between two."""
        bits, build = self.builder.bitcast(vector, self.ints), self.builder
        odd = build.and_(build.lshr(bits, self.all_ints(16)), self.all_ints(1))
        return build.add(build.add(bits, self.all_ints(0x7FFF)), odd)

    def broadcast(self, value: Code) -> Code:
        """A float32 in all lanes."""
        nothing = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(nothing, value, ir.Constant(ir.IntType(32), 0))
        return self.builder.shuffle_vector(first, first, ir.Constant(self.ints, None))

    def load_broadcast(self, address: Code) -> Code:
        """The float32 at an address in all lanes."""
        return self.broadcast(self.load(address, NUMBER))

    def fma(self, total: Code, a: Code, b: Code) -> Code:
        return self.builder.fadd(self.builder.fmul(a, b, flags=FUSED), total, flags=FUSED)

    def const(self, value: float | np.float32) -> Code:
        return ir.Constant(self.vector, [float(value)] * self.lanes)

    def broadcast_int(self, value: Code) -> Code:
        """The lower 32 bits of a number in all lanes."""
        nothing, kind = ir.Constant(self.ints, ir.Undefined), ir.IntType(32)
        first = value if value.type == kind else self.builder.trunc(value, kind)
        one = self.builder.insert_element(nothing, first, ir.Constant(kind, 0))
        return self.builder.shuffle_vector(one, one, ir.Constant(self.ints, None))

    def load_int32(self, address: Code) -> Code:
        return self.load(address, self.ints)

    def load_broadcast_int(self, address: Code) -> Code:
        """32 bits in all lanes."""
        return self.broadcast_int(self.load(address, ir.IntType(32)))

    def maximum(self, a: Code, b: Code) -> Code:
        """`b` where `a` is no number."""
        return self.builder.select(self.builder.fcmp_ordered(">", a, b), a, b)

    def exp(self, x: Code) -> Code:
        """Computes in each lane what the function `exp` does."""
        build = self.builder
        x, least = build.fmul(x, self.const(LOG2_E), flags=STRICT), self.const(-126)
        x = build.select(build.fcmp_ordered("<", x, least), least, x)
        kind = ir.FunctionType(self.vector, [self.vector])
        name = f"llvm.floor.v{self.lanes}f32"
        whole = build.call(cgutils.get_or_insert_function(build.module, kind, name), [x])
        part, power = build.fsub(x, whole, flags=STRICT), self.const(C5)
        for c in (C4, C3, C2, C1, C0):
            power = self.fma(self.const(c), power, part)
        bits = build.add(build.fptosi(whole, self.ints), self.all_ints(127))
        bits = build.shl(bits, self.all_ints(23))
        return build.fmul(power, build.bitcast(bits, self.vector), flags=STRICT)

    def reduce_add(self, vector: Code) -> Code:
        """The sum of the lanes, in the fastest order, which is always the same."""
        if self.lanes == 1:
            return self.builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))
        kind = ir.FunctionType(NUMBER, [NUMBER, self.vector])
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f32"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [ir.Constant(NUMBER, 0), vector], fastmath=("reassoc",))

    def load_registers(self, addresses: Sequence[Code]) -> list[Code]:
        """Vectors kept in registers, with what is in memory now."""
        kept = [cgutils.alloca_once(self.builder, self.vector) for _ in addresses]
        for address, register in zip(addresses, kept, strict=True):
            self.builder.store(self.load(address, self.vector), register)
        return kept

    def zero_registers(self, n: int) -> list[Code]:
        """Vectors kept in registers, all 0."""
        kept = [cgutils.alloca_once(self.builder, self.vector) for _ in range(n)]
        for register in kept:
            self.builder.store(ir.Constant(self.vector, None), register)
        return kept

    def int_registers(self, n: int) -> list[Code]:
        """Vectors of int32 kept in registers, all 0."""
        kept = [cgutils.alloca_once(self.builder, self.ints) for _ in range(n)]
        for register in kept:
            self.builder.store(ir.Constant(self.ints, None), register)
        return kept

    def store_registers(self, kept: Sequence[Code], addresses: Sequence[Code]) -> None:
        for address, register in zip(addresses, kept, strict=True):
            self.store(self.builder.load(register), address)

    def all_ints(self, value: int) -> Code:
        return ir.Constant(self.ints, [value] * self.lanes)


@njit(inline="always")
def to_float32(bits: Code) -> Code:
    return as_float32(np.uint32(bits) << np.uint32(16))


@njit(inline="always")
def to_bfloat16(value: Code) -> Code:
    """Rounds to the nearest bfloat16, to the even one between two; a NaN stays one."""
    bits = as_bits(value)
    if value != value:
        return np.uint16((bits >> np.uint32(16)) | np.uint32(0x40))
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@njit(inline="always")
def exp(x: Code) -> Code:
    """Computes e to the power x for x <= 0, to some 2e-7 of it; 1 for 0."""
    x = max(x * LOG2_E, np.float32(-126))
    whole = np.floor(x)
    part = x - whole
    power = ((((C5 * part + C4) * part + C3) * part + C2) * part + C1) * part + C0
    return power * as_float32(np.uint32(np.int32(whole) + np.int32(127)) << np.uint32(23))
