"""Times the attention of chunks on a GPU by itself, by how many keys a split has.

    python -m tests.bench.chunks

The launches are captured, so that the host is not timed.
"""

from dataclasses import replace

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from deployments.engine.attention.gpu import plan_triton_attention, tiling_of
from deployments.engine.forward.cuda_graphs import CudaGraphCapture
from kv.layout import alike
from kv.storage import Storage
from tests.bench.device_time import best_seconds

DTYPE, PAGE_SIZE = torch.bfloat16, 16
CALLS = 8  # that are captured together
HEADS = 32, 8, 128  # heads, KV heads, head size
CHUNKS = ((0, 8192), (6144, 2048), (32768, 2048), (0, 512), (8192, 17), (32768, 17), (131072, 17))
SPLIT_KEYS = (1024, 2048, 4096, 1 << 20)  # with the last one nothing is split


def chunk_seconds(
    cached: int, new: int, heads: int, kv_heads: int, head_dim: int, split_keys: int | None = None
) -> float:
    """Times one layer's attention of `new` tokens to `cached` ones before, and to themselves."""
    from deployments.engine.kernels.gpu.attention_ops import Attention

    pages = -(-(cached + new) // PAGE_SIZE)
    layout = alike(1, kv_heads, head_dim)
    storage = Storage(layout, pages, PAGE_SIZE, dtype=DTYPE, device="cuda")
    for tensor in storage.layers[0]:
        tensor.normal_()
    q = torch.randn(new, heads, head_dim, dtype=DTYPE, device="cuda")
    tiling = tiling_of(DTYPE, head_dim, storage.device)
    tiling = replace(tiling, chunk_split_keys=split_keys or tiling.chunk_split_keys)
    attention = Attention(
        *storage.layers[0], head_dim**-0.5, None, None, None, None, (1.0, 1.0), tiling
    )
    table = np.random.default_rng(0).permutation(pages)[None]
    step = plan_triton_attention(storage, table, np.array([cached + new]), np.array([new]))
    out = torch.empty_like(q)

    def run() -> None:
        for _ in range(CALLS):
            step._attend_chunks(attention, out, q)

    run()  # what it copies to the device is there from now on
    return best_seconds(CudaGraphCapture()(run), "cuda") / CALLS


def operations(cached: int, new: int, heads: int, head_dim: int) -> float:
    """Counts the operations of the scores that are seen, and of the values."""
    return 4.0 * heads * head_dim * new * (cached + new / 2)


def main() -> None:
    table = Table("tokens behind cached ones", *(f"splits of {keys}" for keys in SPLIT_KEYS))
    heads, kv_heads, head_dim = HEADS
    for cached, new in track(CHUNKS, "chunks"):
        taken = [chunk_seconds(cached, new, *HEADS, keys) for keys in SPLIT_KEYS]
        rates = [operations(cached, new, heads, head_dim) / seconds / 1e12 for seconds in taken]
        n_bytes = 2 * (cached + new) * kv_heads * head_dim * DTYPE.itemsize
        speeds = [n_bytes / seconds / 1e12 for seconds in taken]
        cells = zip(taken, rates, speeds, strict=True)
        shown = [f"{t * 1e6:.0f} us, {r:.0f} TFLOP/s, {s:.2f} TB/s" for t, r, s in cells]
        table.add_row(f"{new} behind {cached}", *shown)
    Console(width=170).print(table)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
