"""Triton kernels of what LoRA adapters add. Tokens of one slot lie side by side in a list of
tokens, and a program takes some of one slot: where there are none it ends at once, so that which
slots a step has changes no launch.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n_tokens"])
def shrink_kernel(
    x, tokens, begins, a, out, n_tokens, WIDTH: tl.constexpr, SHARE: tl.constexpr,
    PARTS: tl.constexpr, RANK: tl.constexpr, TOKENS: tl.constexpr, INPUTS: tl.constexpr,
    DOT: tl.constexpr,
):  # fmt: skip
    """A x of SHARE inputs. One program for TOKENS of a slot, a part and a split of the inputs."""
    part, split = tl.program_id(1) % PARTS, (tl.program_id(1) // PARTS).to(tl.int64)
    slot = tl.program_id(2).to(tl.int64)
    first = tl.load(begins + slot) + tl.program_id(0) * TOKENS
    end = tl.load(begins + slot + 1)
    if first < end:
        index = first + tl.arange(0, TOKENS)
        is_own = index < end
        token = tl.load(tokens + index, mask=is_own, other=0)[:, None]
        rank, inputs = tl.arange(0, RANK), tl.arange(0, INPUTS)
        matrix = a + (slot * PARTS + part) * RANK * WIDTH + rank[None, :] * WIDTH
        total = tl.zeros((TOKENS, RANK), dtype=tl.float32)
        for begin in range(0, SHARE, INPUTS):
            i = split * SHARE + begin + inputs
            row = tl.load(x + token * WIDTH + i[None, :], mask=(i < WIDTH)[None, :], other=0.0)
            column = tl.load(matrix + i[:, None], mask=(i < WIDTH)[:, None], other=0.0)
            total += tl.dot(row.to(DOT), column.to(DOT), input_precision="ieee")
        at = ((split * n_tokens + index[:, None]) * PARTS + part) * RANK + rank[None, :]
        tl.store(out + at, total, mask=is_own[:, None])


@triton.jit(do_not_specialize=["n_tokens"])
def expand_kernel(
    shrunk, tokens, begins, blocks, b, out, n_tokens, first_out, out_stride, OUTS: tl.constexpr,
    SPLITS: tl.constexpr, PARTS: tl.constexpr, RANK: tl.constexpr, TOKENS: tl.constexpr,
    OUTPUTS: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    """Adds B shrunk. One program for TOKENS of a slot, and a block of OUTPUTS of one part."""
    slot = tl.program_id(2).to(tl.int64)
    first = tl.load(begins + slot) + tl.program_id(0) * TOKENS
    end = tl.load(begins + slot + 1)
    if first < end:
        block = blocks + tl.program_id(1) * 3
        part, first_of_block, n_outputs = tl.load(block), tl.load(block + 1), tl.load(block + 2)
        index, rank = first + tl.arange(0, TOKENS), tl.arange(0, RANK)
        is_own, output = index < end, tl.arange(0, OUTPUTS)
        is_there = is_own[:, None] & (output < n_outputs)[None, :]
        token = tl.load(tokens + index, mask=is_own, other=0).to(tl.int64)[:, None]
        at = (index[:, None].to(tl.int64) * PARTS + part) * RANK + rank[None, :]
        total = tl.zeros((TOKENS, RANK), dtype=tl.float32)
        for split in tl.static_range(SPLITS):
            summand = shrunk + split * n_tokens * PARTS * RANK + at
            total += tl.load(summand, mask=is_own[:, None], other=0.0)
        own = total.to(b.dtype.element_ty)
        matrix = b + (slot * OUTS + first_of_block + output[None, :]) * RANK + rank[:, None]
        column = tl.load(matrix, mask=(output < n_outputs)[None, :], other=0.0)
        added = tl.dot(own.to(DOT), column.to(DOT), input_precision="ieee")
        target = out + token * out_stride + (first_of_block - first_out + output)[None, :]
        before = tl.load(target, mask=is_there, other=0.0).to(tl.float32)
        tl.store(target, (before + added).to(out.dtype.element_ty), mask=is_there)
