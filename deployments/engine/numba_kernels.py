"""What stands between the matrix products of a step, for bfloat16 on a CPU, compiled by numba.

torch runs some fifteen operations a layer for it. At few rows they took as long as the products
(tests/bench/RESULTS.md): each passes through Python and a dispatcher, most on one core.

Every task, a token or a row's heads, is computed in one order whatever else is in the batch, so
what is beside a token and which thread takes it change no bit.

All code that is compiled stands in this file: numba keeps what it compiled for as long as the file
of a kernel stays the same.
"""

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
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
PACKS = (32, 64, 48, 16)  # how many outputs may lie side by side in a packed matrix
NONE, SWISH, ADD, MUL = range(4)  # what may follow a product
WORDS = 24  # of a block of arguments
LOG2_E = np.float32(1.4426950408889634)
# exp2 on [0, 1), a polynomial of least error; see `_exp`.
C0, C1, C2, C3, C4, C5 = (
    np.float32(c)
    for c in (0.99999994, 0.69315308, 0.24015361, 0.055826318, 0.0089893397, 0.0018775767)
)
LANES = 16  # of a vector of float32
REGISTERS = 16  # that sums may take, of 32
AHEAD = 4096  # bytes that are fetched before they are read

Code = Any  # what the code generator of llvmlite takes and gives
WORD, NUMBER, SHORT = ir.IntType(64), ir.FloatType(), ir.IntType(16)
FUSED = ("contract",)  # a product and a sum in one operation


@intrinsic
def _take(typing: Code, address: Code) -> tuple[Signature, Code]:
    """The number at the address, which is one more afterwards, in one piece."""

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        pointer = builder.inttoptr(arguments[0], WORD.as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(WORD, 1), "monotonic")

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


_as_float32 = _cast(types.float32, types.uint32, ir.FloatType)
_as_bits = _cast(types.uint32, types.float32, lambda: ir.IntType(32))
_as_float64 = _cast(types.float64, types.int64, ir.DoubleType)
_at_u16, _at_i64 = _pointer(types.uint16), _pointer(types.int64)


class _Emitter:
    """Writes vectors of float32; places are addresses and offsets in bytes.

    Inner loops are written out so, because what the compiler makes of them neither keeps the sums
    in registers nor fetches memory ahead of where the processor would. Memory is all that they
    wait for: a large matrix came at 11 GB/s to one core, and so at 20.
    """

    def __init__(self, builder: Code, lanes: int) -> None:
        self.builder = builder
        self.lanes = lanes
        self.vector = ir.VectorType(NUMBER, lanes)
        self._ints = ir.VectorType(ir.IntType(32), lanes)

    def place(self, base: Code, *offsets: Code) -> Code:
        """The sum; whole numbers are constants."""
        for offset in offsets:
            by = ir.Constant(WORD, offset) if isinstance(offset, int) else offset
            base = self.builder.add(base, by)
        return base

    def times(self, value: Code, factor: int) -> Code:
        return self.builder.mul(value, ir.Constant(WORD, factor))

    def loop(self, count: Code) -> AbstractContextManager[Code]:
        loop: AbstractContextManager[Code] = cgutils.for_range(self.builder, count)
        return loop

    def load(self, place: Code, kind: Code) -> Code:
        return self.builder.load(self.builder.inttoptr(place, kind.as_pointer()), align=2)

    def store(self, value: Code, place: Code) -> None:
        pointer = self.builder.inttoptr(place, value.type.as_pointer())
        self.builder.store(value, pointer, align=4)

    def fetch(self, place: Code) -> None:
        """Has the memory there brought near."""
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte] + [ir.IntType(32)] * 3)
        function = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        hints = [ir.Constant(ir.IntType(32), hint) for hint in (0, 3, 1)]
        self.builder.call(function, [self.builder.inttoptr(place, byte), *hints])

    def wide(self, place: Code) -> Code:
        """As many bfloat16 as there are lanes."""
        narrow = self.load(place, ir.VectorType(SHORT, self.lanes))
        bits = self.builder.shl(self.builder.zext(narrow, self._ints), self._all(16))
        return self.builder.bitcast(bits, self.vector)

    def pairs(self, place: Code) -> tuple[Code, Code]:
        """Of twice as many bfloat16 the even ones and the odd ones."""
        two = self.load(place, self._ints)
        even = self.builder.shl(two, self._all(16))
        odd = self.builder.and_(two, self._all(0xFFFF0000))
        return self.builder.bitcast(even, self.vector), self.builder.bitcast(odd, self.vector)

    def spread(self, place: Code) -> Code:
        """One float32 in all lanes."""
        first = ir.Constant(ir.IntType(32), 0)
        nothing = ir.Constant(self.vector, ir.Undefined)
        one = self.builder.insert_element(nothing, self.load(place, NUMBER), first)
        return self.builder.shuffle_vector(one, one, ir.Constant(self._ints, None))

    def added(self, total: Code, a: Code, b: Code) -> Code:
        return self.builder.fadd(self.builder.fmul(a, b, flags=FUSED), total, flags=FUSED)

    def sum(self, vector: Code) -> Code:
        """Of its lanes, in whatever order is quickest, which is always the same."""
        if self.lanes == 1:
            return self.builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))
        kind = ir.FunctionType(NUMBER, [NUMBER, self.vector])
        name = f"llvm.vector.reduce.fadd.v{self.lanes}f32"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, [ir.Constant(NUMBER, 0), vector], fastmath=("reassoc",))

    def held(self, places: Sequence[Code]) -> list[Code]:
        """Vectors in registers, with what is at their places now."""
        kept = [cgutils.alloca_once(self.builder, self.vector) for _ in places]
        for place, one in zip(places, kept, strict=True):
            self.builder.store(self.load(place, self.vector), one)
        return kept

    def put_back(self, kept: Sequence[Code], places: Sequence[Code]) -> None:
        for place, one in zip(places, kept, strict=True):
            self.store(self.builder.load(one), place)

    def _all(self, value: int) -> Code:
        return ir.Constant(self._ints, [value] * self.lanes)


@intrinsic(prefer_literal=True)
def _multiply_block(
    typing: Code, weight: Code, x: Code, sums: Code, width: Code, rows: Code, pack: Code
) -> tuple[Signature, Code]:
    """`sums += x @ block`: x [rows, width] and sums [rows, pack] of float32, and a block of a
    packed matrix, [width / 2, pack, 2] of bfloat16."""
    n_rows, n_pack = rows.literal_value, pack.literal_value

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        weight, x, sums, width = arguments[:4]
        emit = _Emitter(builder, LANES)
        parts = range(n_pack // LANES)
        places = [
            emit.place(sums, 4 * (row * n_pack + part * LANES))
            for row in range(n_rows)
            for part in parts
        ]
        kept = emit.held(places)
        with emit.loop(builder.udiv(width, ir.Constant(WORD, 2))) as loop:
            block = emit.place(weight, emit.times(loop.index, 4 * n_pack))
            pair = emit.times(loop.index, 8)
            for part in parts:
                at = emit.place(block, 4 * part * LANES)
                emit.fetch(emit.place(at, AHEAD))
                even, odd = emit.pairs(at)
                for row in range(n_rows):
                    own = emit.place(x, emit.times(width, 4 * row), pair)
                    held = kept[row * len(parts) + part]
                    total = emit.added(builder.load(held), even, emit.spread(own))
                    total = emit.added(total, odd, emit.spread(emit.place(own, 4)))
                    builder.store(total, held)
        emit.put_back(kept, places)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64, rows, pack), generate


@intrinsic(prefer_literal=True)
def _score_tokens(
    typing: Code,
    keys: Code,
    stride: Code,
    count: Code,
    queries: Code,
    scores: Code,
    scores_stride: Code,
    group: Code,
    dim: Code,
) -> tuple[Signature, Code]:
    """scores[i, t] = queries[i] @ keys[t] for `count` tokens: queries [group, dim] of float32,
    keys [dim] of bfloat16 every `stride` bytes."""
    n_group, n_dim = group.literal_value, dim.literal_value

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        keys, stride, count, queries, scores, scores_stride = arguments[:6]
        emit = _Emitter(builder, _lanes(n_dim))
        parts = range(0, n_dim, emit.lanes)
        with emit.loop(count) as loop:
            key = emit.place(keys, builder.mul(loop.index, stride))
            values = [emit.wide(emit.place(key, 2 * part)) for part in parts]
            for i in range(n_group):
                total = ir.Constant(emit.vector, None)
                for part, value in zip(parts, values, strict=True):
                    own = emit.load(emit.place(queries, 4 * (i * n_dim + part)), emit.vector)
                    total = emit.added(total, value, own)
                row = emit.place(scores, emit.times(scores_stride, i))
                emit.store(emit.sum(total), emit.place(row, emit.times(loop.index, 4)))
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6, group, dim), generate


@intrinsic(prefer_literal=True)
def _mix_tokens(
    typing: Code,
    values: Code,
    stride: Code,
    count: Code,
    weights: Code,
    weights_stride: Code,
    sums: Code,
    group: Code,
    dim: Code,
) -> tuple[Signature, Code]:
    """sums[i] += weights[i, t] * values[t] over `count` tokens: sums [group, dim] of float32,
    values [dim] of bfloat16 every `stride` bytes."""
    n_group, n_dim = group.literal_value, dim.literal_value

    def generate(context: Code, builder: Code, signature: Code, arguments: Code) -> Code:
        values, stride, count, weights, weights_stride, sums = arguments[:6]
        emit = _Emitter(builder, _lanes(n_dim))
        parts = range(0, n_dim, emit.lanes)
        at_once = max(1, REGISTERS // len(parts))
        for first in range(0, n_group, at_once):
            heads = range(first, min(n_group, first + at_once))
            places = [
                emit.place(sums, 4 * (head * n_dim + part)) for head in heads for part in parts
            ]
            kept = emit.held(places)
            with emit.loop(count) as loop:
                value = emit.place(values, builder.mul(loop.index, stride))
                shares = []
                for head in heads:
                    row = emit.place(weights, emit.times(weights_stride, head))
                    shares.append(emit.spread(emit.place(row, emit.times(loop.index, 4))))
                for number, part in enumerate(parts):
                    wide = emit.wide(emit.place(value, 2 * part))
                    for place, share in enumerate(shares):
                        held = kept[place * len(parts) + number]
                        builder.store(emit.added(builder.load(held), wide, share), held)
            emit.put_back(kept, places)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6, group, dim), generate


def _lanes(dim: int) -> int:
    """The widest vector that divides it."""
    return next(lanes for lanes in (16, 8, 4, 2, 1) if dim % lanes == 0)


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
        token_bytes = 2 * kv_heads * dim
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
                given = carray(_at_u16(q + 2 * i * a[3]), (dim,))
                for d in range(dim):
                    query[i, d] = _up(given[d]) * scale
                    sums[i, d] = 0
            for page in range(begin // page_size, (n - 1) // page_size + 1):
                start = max(begin, page * page_size)
                slot = table[page] * page_size + start % page_size
                at = a[5] + 2 * (slot * kv_heads + first) * dim
                count = min(n, (page + 1) * page_size) - start
                for head in range(heads_each):
                    keys = at + 2 * head * dim
                    own = query.ctypes.data + 4 * head * group * dim
                    out = scores.ctypes.data + 4 * (head * group * longest + start)
                    _score_tokens(keys, token_bytes, count, own, out, 4 * longest, group, dim)
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
            for page in range(begin // page_size, (n - 1) // page_size + 1):
                start = max(begin, page * page_size)
                slot = table[page] * page_size + start % page_size
                at = a[6] + 2 * (slot * kv_heads + first) * dim
                count = min(n, (page + 1) * page_size) - start
                for head in range(heads_each):
                    values = at + 2 * head * dim
                    shares = scores.ctypes.data + 4 * (head * group * longest + start)
                    into = sums.ctypes.data + 4 * head * group * dim
                    _mix_tokens(values, token_bytes, count, shares, 4 * longest, into, group, dim)
            q_head = (places[row] * kv_heads + first) * group
            result = carray(_at_u16(a[4] + 2 * q_head * dim), (heads_each * group, dim))
            for i in range(heads_each * group):
                for d in range(dim):
                    result[i, d] = _down(sums[i, d])

    return Kernel(body, "qqqqqqqqqqqqqqqqddq")


@cache
def product_kernel(rows: int, pack: int) -> Kernel:
    """A few rows times a matrix that lies as oneDNN packs it for itself.

    That is [out / pack, in / 2, pack, 2], filled up with zeros. Memory is what bounds it: each
    weight is read once, and a thread that is held up is waited for no longer than a block takes.

    Arguments: x, weight, bias or 0, other or 0, out, in, out features, what follows the product.
    """

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
            _multiply_block(
                a[2] + 2 * first * width, x.ctypes.data, sums.ctypes.data, width, rows, pack
            )
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
