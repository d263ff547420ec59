"""Packs rows that lie in blocks, without any tensor between."""

from functools import cache
from typing import NamedTuple

from numba import carray

from deployments.engine.kernels.cpu.dispatch import Kernel, reader_of
from deployments.engine.kernels.cpu.pack_format import QuantizedFormat
from deployments.engine.kernels.cpu.quantized.block_ir import FORMS, pack_block
from deployments.engine.kernels.cpu.simd import PACK, Code, at_i64, at_u64, next_task
from deployments.engine.quantized.block_rows import BlockForm

WEIGHTS_AT_ONCE = 1024  # of each output: what they are packed to stays in a cache


class PackBlocksArguments(NamedTuple):
    rows: int  # int64 [outputs], the address of each
    n_blocks: int  # of a row
    packed: int
    stride: int  # bytes of a packed block, a multiple of 8
    first: int  # offsets of factors in it
    second: int
    third: int
    fourth: int
    n_outputs: int


_arguments = reader_of(PackBlocksArguments)


@cache
def pack_blocks_kernel(form: BlockForm, quantized: QuantizedFormat) -> Kernel:
    """Packs blocks of a form, whose rows have the layout of the packed format."""
    number, packed_number, n_bytes = form.number, quantized.number, form.n_bytes
    FORMS[number] = form
    at_once = max(1, WEIGHTS_AT_ONCE // form.n_weights)

    def body(block: Code) -> None:
        args = _arguments(block)
        rows = carray(at_i64(args.rows), (args.n_outputs,))
        while True:
            nth = next_task(block)
            first = nth * PACK
            if first >= args.n_outputs:
                break
            out = args.packed + nth * args.stride
            carray(at_u64(out), (args.stride // 8,))[:] = 0
            for begin in range(0, args.n_blocks, at_once):
                end = min(begin + at_once, args.n_blocks)
                for lane in range(min(PACK, args.n_outputs - first)):
                    for i in range(begin, end):
                        pack_block(
                            rows[first + lane] + i * n_bytes,
                            out,
                            out + args.first,
                            out + args.second,
                            out + args.third,
                            out + args.fourth,
                            i,
                            lane,
                            number,
                            packed_number,
                        )

    return Kernel(body, PackBlocksArguments)
