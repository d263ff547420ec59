"""What stands between the matrix products of a step, for bfloat16 on a CPU, compiled by numba.

torch runs some fifteen operations a layer for it. At few rows they took as long as the products
(tests/bench/RESULTS.md): each passes through Python and a dispatcher, most on one core.

Every task, a token or a row's heads, is computed in one order whatever else is in the batch, so
what is beside a token and which thread takes it change no bit.
"""

import ctypes
import os
import struct
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, cfunc, njit, types
from numba.core import cgutils
from numba.core.typing import Signature
from numba.extending import intrinsic

# Sums may be taken in lanes; NaN and infinity stay what they are.
MATH = {"reassoc", "contract", "arcp", "nsz"}
SERIAL_WORK = 1 << 15  # multiplications that waking the workers would cost more than they save
AHEAD = 4096  # bytes
LANES = 16  # of a vector of float32
PACKS = (32, 64, 48, 16)  # how many outputs may lie side by side in a packed matrix
NONE, SWISH, ADD, MUL = range(4)  # what may follow a product
WORDS = 24  # of a block of arguments
LOG2_E = np.float32(1.4426950408889634)
# exp2 on [0, 1), a polynomial of least error; see `_exp`.
C0, C1, C2, C3, C4, C5 = (
    np.float32(c)
    for c in (0.99999994, 0.69315308, 0.24015361, 0.055826318, 0.0089893397, 0.0018775767)
)

Code = Any  # what the code generator of llvmlite takes and gives


@intrinsic
def _take(typing: Code, address: Code) -> tuple[Signature, Code]:
    """The number at the address, which is one more afterwards, in one piece."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        word = ir.IntType(64)
        pointer = builder.inttoptr(arguments[0], word.as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(word, 1), "monotonic")

    return types.int64(types.int64), generate


def _cast(to: Code, of: Code, width: Callable[[], Code]) -> Code:
    @intrinsic
    def cast(typing: Code, value: Code) -> tuple[Signature, Code]:
        def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
            return builder.bitcast(arguments[0], width())

        return to(of), generate

    return cast


def _pointer(to: Code) -> Code:
    @intrinsic
    def pointer(typing: Code, address: Code) -> tuple[Signature, Code]:
        def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
            return builder.inttoptr(arguments[0], context.get_value_type(types.CPointer(to)))

        return types.CPointer(to)(types.int64), generate

    return pointer


def _product(rows: int, pack: int) -> Code:
    """`sums += x @ block` for one block of a packed matrix, its sums in registers throughout.

    x [rows, in] and sums [rows, pack] are float32. Written out, because what the compiler makes of
    loops neither keeps the sums nor fetches ahead of where the processor would, and memory is all
    that it waits for: a large matrix came at 11 GB/s to one core, and at AHEAD at 20.
    """

    @intrinsic
    def product(
        typing: Code, weight: Code, x: Code, sums: Code, width: Code
    ) -> tuple[Signature, Code]:
        def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
            weight, x, sums, width = arguments
            word, byte = ir.IntType(64), ir.IntType(8)
            parts = range(pack // LANES)
            number, vector = ir.FloatType(), ir.VectorType(ir.FloatType(), LANES)
            pairs = ir.VectorType(ir.IntType(32), LANES)
            prefetch = cgutils.get_or_insert_function(
                builder.module,
                ir.FunctionType(ir.VoidType(), [byte.as_pointer()] + [ir.IntType(32)] * 3),
                "llvm.prefetch.p0",
            )

            def at(base: Code, offset: Code, kind: Code) -> Code:
                return builder.inttoptr(builder.add(base, offset), kind.as_pointer())

            def constant(value: int) -> Code:
                return ir.Constant(word, value)

            def everywhere(kind: Code, value: int) -> Code:
                return ir.Constant(kind, [value] * LANES)

            def spread(value: Code) -> Code:
                one = builder.insert_element(
                    ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0)
                )
                zeros = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
                return builder.shuffle_vector(one, one, zeros)

            places = [
                constant(4 * (row * pack + part * LANES)) for row in range(rows) for part in parts
            ]
            kept = [cgutils.alloca_once(builder, vector) for _ in places]
            for place, held in zip(places, kept, strict=True):
                builder.store(builder.load(at(sums, place, vector), align=4), held)
            row_bytes = builder.mul(width, constant(4))
            with cgutils.for_range(builder, builder.udiv(width, constant(2))) as loop:
                start = builder.mul(loop.index, constant(4 * pack))
                for part in parts:
                    offset = builder.add(start, constant(4 * part * LANES))
                    ahead = builder.add(offset, constant(AHEAD))
                    hints = [ir.Constant(ir.IntType(32), hint) for hint in (0, 3, 1)]
                    builder.call(prefetch, [at(weight, ahead, byte), *hints])
                    two = builder.load(at(weight, offset, pairs), align=4)
                    low = builder.shl(two, everywhere(pairs, 16))
                    high = builder.and_(two, everywhere(pairs, 0xFFFF0000))
                    for row in range(rows):
                        held = kept[row * len(parts) + part]
                        total = builder.load(held)
                        for half, place in ((low, 0), (high, 4)):
                            offset_x = builder.add(
                                builder.mul(row_bytes, constant(row)),
                                builder.add(builder.mul(loop.index, constant(8)), constant(place)),
                            )
                            value = spread(builder.load(at(x, offset_x, number), align=4))
                            scaled = builder.fmul(
                                builder.bitcast(half, vector), value, flags=("contract",)
                            )
                            total = builder.fadd(scaled, total, flags=("contract",))
                        builder.store(total, held)
            for place, held in zip(places, kept, strict=True):
                builder.store(builder.load(held), at(sums, place, vector), align=4)
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64, types.int64), generate

    return product


_as_float32 = _cast(types.float32, types.uint32, ir.FloatType)
_as_bits = _cast(types.uint32, types.float32, lambda: ir.IntType(32))
_as_float64 = _cast(types.float64, types.int64, ir.DoubleType)
_at_u16, _at_i64 = _pointer(types.uint16), _pointer(types.int64)


@njit(inline="always")
def _up(bits: Code) -> Code:
    return _as_float32(np.uint32(bits) << np.uint32(16))


@njit(inline="always")
def _down(value: Code) -> Code:
    """To the nearest bfloat16, to the even one between two; a NaN stays one."""
    bits = _as_bits(value)
    if value != value:
        return np.uint16((bits >> np.uint32(16)) | np.uint32(0x40))
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    return np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))


@njit(inline="always")
def _exp(x: Code) -> Code:
    """For x <= 0, to some 2e-7 of it."""
    x = max(x * LOG2_E, np.float32(-126))
    whole = np.floor(x)
    part = x - whole
    power = ((((C5 * part + C4) * part + C3) * part + C2) * part + C1) * part + C0
    return power * _as_float32(np.uint32(np.int32(whole) + np.int32(127)) << np.uint32(23))


class Kernel:
    """A loop over independent tasks, which the threads of torch's own team take in turns."""

    def __init__(self, body: Callable[[Code], None], layout: str) -> None:
        self._function = _compile(body)  # kept, or its code would be gone
        self._address = self._function.address
        self._alone = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._address)
        self._pack = struct.Struct("q" + layout).pack_into
        self._local = _Blocks()

    def __call__(self, work: int, *arguments: float) -> None:
        """`work` is about how many multiplications it takes."""
        block, address = self._local.block, self._local.address
        self._pack(block, 0, 0, *arguments)
        if work > SERIAL_WORK and TEAM is not None:
            TEAM(self._address, address, 0, 0)
        else:
            self._alone(address)


def _compile(body: Callable[[Code], None]) -> Code:
    def compiled(cache: bool) -> Code:
        kind = types.void(types.intp)
        return cfunc(kind, cache=cache, fastmath=MATH, error_model="numpy")(body)

    try:
        return compiled(cache=True)
    except RuntimeError:  # there is no folder that it could write into
        return compiled(cache=False)


class _Blocks(threading.local):
    """Every thread's own block of arguments; its first word counts the tasks that are taken."""

    def __init__(self) -> None:
        self.block = (ctypes.c_int64 * WORDS)()
        self.address = ctypes.addressof(self.block)


def _find_team() -> Callable[..., None] | None:
    """Runs a function on OpenMP's team of the calling thread, as torch's operations do."""
    try:
        gomp = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOLOAD | os.RTLD_GLOBAL)
        team = gomp.GOMP_parallel
    except (OSError, AttributeError):
        return None
    team.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    team.restype = None
    found: Callable[..., None] = team
    return found


TEAM = _find_team()


@cache
def norm_kernel() -> Kernel:
    """Arguments: x, weight, out, tokens, width, width of a task's block of tokens, epsilon."""

    def body(block: Code) -> None:
        a = carray(_at_i64(block), (WORDS,))
        n, width, step = a[4], a[5], a[6]
        epsilon = np.float32(_as_float64(a[7]))
        x, out = carray(_at_u16(a[1]), (n, width)), carray(_at_u16(a[3]), (n, width))
        weight = carray(_at_u16(a[2]), (width,))
        while True:
            first = _take(block) * step
            if first >= n:
                break
            for token in range(first, min(n, first + step)):
                squares = np.float32(0)
                for i in range(width):
                    value = _up(x[token, i])
                    squares += value * value
                scale = np.float32(1) / np.sqrt(squares / np.float32(width) + epsilon)
                for i in range(width):
                    out[token, i] = _down(_up(x[token, i]) * scale * _up(weight[i]))

    return Kernel(body, "qqqqqqd")


@cache
def turn_kernel() -> Kernel:
    """Rotary embedding in place, behind an RMSNorm of each head if there are weights for it.

    Arguments: x, its stride of tokens, tokens, heads, dim, cos, sin, weight of the first heads or
    0, how many these are, weight of the others, epsilon. `sin` is negative in its first half.
    """

    def body(block: Code) -> None:
        a = carray(_at_i64(block), (WORDS,))
        stride, n, heads, dim, n_first = a[2], a[3], a[4], a[5], a[9]
        epsilon = np.float32(_as_float64(a[11]))
        half = dim // 2
        x = carray(_at_u16(a[1]), (n * stride,))
        cos, sin = carray(_at_u16(a[6]), (n, dim)), carray(_at_u16(a[7]), (n, dim))
        is_normed = a[8] != 0
        weights = carray(_at_u16(a[8]), (dim,)), carray(_at_u16(a[10]), (dim,))
        while True:
            token = _take(block)
            if token >= n:
                break
            for head in range(heads):
                start = token * stride + head * dim
                if is_normed:
                    weight = weights[0] if head < n_first else weights[1]
                    squares = np.float32(0)
                    for i in range(start, start + dim):
                        squares += _up(x[i]) * _up(x[i])
                    scale = np.float32(1) / np.sqrt(squares / np.float32(dim) + epsilon)
                    for i in range(dim):
                        x[start + i] = _down(_up(x[start + i]) * scale * _up(weight[i]))
                for i in range(half):
                    j = half + i
                    low, high = _up(x[start + i]), _up(x[start + j])
                    turned = _up(_down(low * _up(cos[token, i]))) + high * _up(sin[token, i])
                    x[start + j] = _down(
                        _up(_down(high * _up(cos[token, j]))) + low * _up(sin[token, j])
                    )
                    x[start + i] = _down(turned)

    return Kernel(body, "qqqqqqqqqqd")


@cache
def store_kernel() -> Kernel:
    """Arguments: keys, their strides of tokens and heads, values, theirs, slots, cache of keys and
    of values, tokens, heads, dim."""

    def body(block: Code) -> None:
        a = carray(_at_i64(block), (WORDS,))
        n, heads, dim = a[10], a[11], a[12]
        slots = carray(_at_i64(a[7]), (n,))
        while True:
            token = _take(block)
            if token >= n:
                break
            for of in range(2):
                new = a[1 + 3 * of] + 2 * token * a[2 + 3 * of]
                kept = a[8 + of] + 2 * slots[token] * heads * dim
                for head in range(heads):
                    source = carray(_at_u16(new + 2 * head * a[3 + 3 * of]), (dim,))
                    target = carray(_at_u16(kept + 2 * head * dim), (dim,))
                    for i in range(dim):
                        target[i] = source[i]

    return Kernel(body, "qqqqqqqqqqqq")


@cache
def decode_kernel(dim: int, group: int) -> Kernel:
    """Attention of one new token a row to the pages of its row.

    Arguments: q, its strides of tokens and heads, out [tokens, heads, dim], cache of keys and of
    values [pages, page size, kv heads, dim], rows, their places in the batch, page tables, stride
    of these, tokens of each row, the most of them, kv heads, page size, window, sinks of the heads
    or 0, scale, soft cap or 0, kv heads of one task.
    """

    def body(block: Code) -> None:
        a = carray(_at_i64(block), (WORDS,))
        rows, longest, kv_heads, page_size, window = a[7], a[12], a[13], a[14], a[15]
        scale, cap = np.float32(_as_float64(a[17])), np.float32(_as_float64(a[18]))
        heads_each = a[19]
        sinks = carray(_at_u16(a[16]), (kv_heads * group,))
        places, lengths = carray(_at_i64(a[8]), (rows,)), carray(_at_i64(a[11]), (rows,))
        scores = np.empty((heads_each * group, longest), np.float32)
        query = np.empty((heads_each * group, dim), np.float32)
        sums = np.empty((heads_each * group, dim), np.float32)
        one = np.empty(dim, np.float32)
        while True:
            taken = _take(block) * heads_each
            if taken >= rows * kv_heads:
                break
            row, first = taken // kv_heads, taken % kv_heads
            n = lengths[row]
            begin = max(0, n - window)
            table = carray(_at_i64(a[9] + 8 * row * a[10]), (n,))
            q = a[1] + 2 * (places[row] * a[2] + first * group * a[3])
            for i in range(heads_each * group):
                own = carray(_at_u16(q + 2 * i * a[3]), (dim,))
                for d in range(dim):
                    query[i, d] = _up(own[d]) * scale
                    sums[i, d] = 0
            for t in range(begin, n):
                slot = table[t // page_size] * page_size + t % page_size
                at = a[5] + 2 * (slot * kv_heads + first) * dim
                for head in range(heads_each):
                    key = carray(_at_u16(at + 2 * head * dim), (dim,))
                    for d in range(dim):
                        one[d] = _up(key[d])
                    for i in range(head * group, (head + 1) * group):
                        score = np.float32(0)
                        for d in range(dim):
                            score += query[i, d] * one[d]
                        scores[i, t] = score
            for i in range(heads_each * group):
                if cap > 0:
                    for t in range(begin, n):
                        scores[i, t] = np.tanh(scores[i, t] / cap) * cap
                sink = np.float32(-np.inf) if a[16] == 0 else _up(sinks[first * group + i])
                most = max(sink, scores[i, begin])
                for t in range(begin, n):
                    most = max(most, scores[i, t])
                total = np.float32(0) if a[16] == 0 else _exp(sink - most)
                for t in range(begin, n):
                    scores[i, t] = _exp(scores[i, t] - most)
                    total += scores[i, t]
                for t in range(begin, n):
                    scores[i, t] /= total
            for t in range(begin, n):
                slot = table[t // page_size] * page_size + t % page_size
                at = a[6] + 2 * (slot * kv_heads + first) * dim
                for head in range(heads_each):
                    value = carray(_at_u16(at + 2 * head * dim), (dim,))
                    for d in range(dim):
                        one[d] = _up(value[d])
                    for i in range(head * group, (head + 1) * group):
                        weight = scores[i, t]
                        for d in range(dim):
                            sums[i, d] += weight * one[d]
            start = (places[row] * kv_heads + first) * group
            out = carray(_at_u16(a[4] + 2 * start * dim), (heads_each * group, dim))
            for i in range(heads_each * group):
                for d in range(dim):
                    out[i, d] = _down(sums[i, d])

    return Kernel(body, "qqqqqqqqqqqqqqqqddq")


@cache
def product_kernel(rows: int, pack: int) -> Kernel:
    """A few rows times a matrix that lies as oneDNN packs it for itself.

    That is [out / pack, in / 2, pack, 2], filled up with zeros. Memory is what bounds it: each
    weight is read once, and a thread that is held up is waited for no longer than a block takes.

    Arguments: x, weight, bias or 0, other or 0, out, in, out features, what follows the product.
    """

    product = _product(rows, pack)

    def body(block: Code) -> None:
        a = carray(_at_i64(block), (WORDS,))
        width, n, then = a[6], a[7], a[8]
        given = carray(_at_u16(a[1]), (rows, width))
        bias = carray(_at_u16(a[3]), (n,))
        other, out = carray(_at_u16(a[4]), (rows, n)), carray(_at_u16(a[5]), (rows, n))
        x, sums = np.empty((rows, width), np.float32), np.empty((rows, pack), np.float32)
        for row in range(rows):
            for i in range(width):
                x[row, i] = _up(given[row, i])
        while True:
            taken = _take(block)
            first = taken * pack
            if first >= n:
                break
            for row in range(rows):
                for i in range(pack):
                    sums[row, i] = 0
            product(a[2] + 2 * first * width, x.ctypes.data, sums.ctypes.data, width)
            for row in range(rows):
                for i in range(min(pack, n - first)):
                    value = sums[row, i]
                    if a[3] != 0:
                        value += _up(bias[first + i])
                    if then == SWISH:
                        small = _exp(-abs(value))
                        value *= (np.float32(1) if value >= 0 else small) / (np.float32(1) + small)
                    elif then == ADD:
                        value += _up(other[row, first + i])
                    elif then == MUL:
                        value *= _up(other[row, first + i])
                    out[row, first + i] = _down(value)

    return Kernel(body, "qqqqqqqq")
