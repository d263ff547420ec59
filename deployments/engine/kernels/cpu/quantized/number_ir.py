"""Numbers of bytes and halves, and products of bytes and pairs: a vocabulary of LLVM IR."""

from collections.abc import Sequence

import torch
from llvmlite import ir
from numba.core import cgutils

from deployments.engine.kernels.cpu.simd import HAS_AVX512, SHORT, Code, Emitter

E4M3_UNIT = 256.0  # what its bits are as float16 has to be multiplied with
HALF, BYTE, WORD_OF_PAIR = ir.HalfType(), ir.IntType(8), ir.IntType(32)
EACH_BYTE = 0x01010101  # of a word
BITS_OF_HALF = 0xBF80  # which those of e4m3 become


class BFloatType(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite does not name."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloatType)

    def __hash__(self) -> int:
        return hash(BFloatType)


class NumberEmitter(Emitter):
    """Emits what makes numbers of bytes, halves and codes."""

    def call(self, name: str, kind: Code, *arguments: Code) -> Code:
        types = [argument.type for argument in arguments]
        function = cgutils.get_or_insert_function(
            self.builder.module, ir.FunctionType(kind, types), name
        )
        return self.builder.call(function, arguments)

    def load_half(self, address: Code) -> Code:
        return self.builder.fpext(self.load(address, ir.VectorType(HALF, self.lanes)), self.vector)

    def load_uint8(self, address: Code, offset: int = 0) -> Code:
        """Loads as many uint8 as there are lanes, with an offset, as float32."""
        narrow = self.load(address, ir.VectorType(BYTE, self.lanes))
        whole = self.builder.zext(narrow, self.ints)
        if offset:
            whole = self.builder.add(whole, self.all_ints(offset))
        return self.builder.sitofp(whole, self.vector)

    def load_e4m3(self, address: Code, n: int) -> list[Code]:
        """Loads n vectors of e4m3, and divides them by E4M3_UNIT."""
        build, wide = self.builder, ir.VectorType(SHORT, n * self.lanes)
        bits = build.sext(self.load(address, ir.VectorType(BYTE, n * self.lanes)), wide)
        bits = build.and_(
            build.shl(bits, ir.Constant(wide, [7] * n * self.lanes)),
            ir.Constant(wide, [BITS_OF_HALF] * n * self.lanes),
        )
        halves = build.bitcast(bits, ir.VectorType(HALF, n * self.lanes))
        kind = ir.VectorType(ir.IntType(32), self.lanes)
        return [
            build.fpext(
                build.shuffle_vector(
                    halves,
                    halves,
                    ir.Constant(kind, [nth * self.lanes + lane for lane in range(self.lanes)]),
                ),
                self.vector,
            )
            for nth in range(n)
        ]

    def load_factor(self, address: Code, dtype: torch.dtype) -> Code:
        """A vector of factors."""
        if dtype is torch.float32:
            return self.load(address, self.vector)
        if dtype is torch.float8_e4m3fn:
            return self.builder.fmul(self.load_e4m3(address, 1)[0], self.const(E4M3_UNIT))
        loads = {
            torch.float16: self.load_half,
            torch.bfloat16: self.load_bfloat16,
            torch.uint8: self.load_uint8,
            torch.int8: self.load_int8,
        }
        return loads[dtype](address)

    def words_of(self, n: int) -> Code:
        """The type of n bytes as words, which can be shifted."""
        return ir.VectorType(WORD_OF_PAIR, n // 4)

    def fields(self, words: Code, first: int, bits: int, at: int = 0) -> Code:
        """So many bits of each byte, from the `first` one on, moved to another one."""
        build, kind = self.builder, words.type
        if first != at:
            by = ir.Constant(kind, [abs(first - at)] * kind.count)
            words = build.lshr(words, by) if first > at else build.shl(words, by)
        mask = ((1 << bits) - 1 << at) * EACH_BYTE
        return build.and_(words, ir.Constant(kind, [mask] * kind.count))

    def pair_fma(self, total: Code, pairs: Code, address: Code) -> Code:
        """Adds the products of pairs of bfloat16 with the pair at the address."""
        both = self.broadcast_int(self.load(address, WORD_OF_PAIR))
        inputs = self.builder.bitcast(both, pairs.type)
        return self.call("llvm.x86.avx512bf16.dpbf16ps.512", self.vector, total, pairs, inputs)

    def bytes_in_table(self, table: Sequence[int], codes: Code) -> Code:
        """Bytes of a table of 16, by bytes that are less."""
        n = 4 * self.lanes
        kind = ir.VectorType(BYTE, n)
        name = "llvm.x86.avx512.pshuf.b.512" if HAS_AVX512 else "llvm.x86.avx2.pshuf.b"
        numbers = ir.Constant(kind, [*table] * (n // 16))
        found = self.call(name, kind, numbers, self.builder.bitcast(codes, kind))
        return self.builder.bitcast(found, self.ints)

    def sum_products(self, total: Code, unsigned: Code, signed: Code) -> Code:
        """Adds to each int32 the products of four bytes."""
        name = f"llvm.x86.avx512.vpdpbusd.{32 * self.lanes}"
        kind = ir.VectorType(BYTE, 4 * self.lanes)
        both = [self.builder.bitcast(each, kind) for each in (unsigned, signed)]
        return self.call(name, self.ints, total, *both)

    def shifted(self, ints: Code, right: int) -> Code:
        if right == 0:
            return ints
        shift = self.builder.lshr if right > 0 else self.builder.shl
        return shift(ints, self.all_ints(abs(right)))

    def merged(self, mask: int, a: Code, b: Code) -> Code:
        """The bits of `a` where the mask has them, else those of `b`."""
        build = self.builder
        return build.or_(
            build.and_(a, self.all_ints(mask)), build.and_(b, self.all_ints(~mask & 0xFFFFFFFF))
        )
