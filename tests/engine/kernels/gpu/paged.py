"""Batches for the paged attention kernels, and what they should come to, on whatever device."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.engine.attention.gpu import TritonAttention, plan_triton_attention
from deployments.engine.attention.interface import AttentionParams
from kv.layout import LayerShape
from kv.storage import Storage

# And the errors they allow. Of float32 the scores of wide heads err by 3e-6, here as there.
DTYPES = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}


@dataclass(frozen=True)
class Case:
    """One step of one layer; rows are (tokens before, new tokens)."""

    rows: tuple[tuple[int, int], ...]
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    value_dim: int | None = None  # values are the first so many numbers of keys
    page_size: int = 4
    dtype: str = "float32"
    fp8_pages: bool = False
    window: int | None = None
    softcap: float | None = None
    sinks: bool = False
    slopes: bool = False  # of a half, a quarter, ...
    small_tiles: bool = True  # several of each, although the contexts are short
    multiprocessors: int = 6  # as of a device that some tiles of some batches do not fill
    seed: int = 0
    # Rows, the first and the end of their new tokens that see each other both ways, and whether
    # they do so only where there is a window.
    spans: tuple[tuple[int, int, int, int], ...] = ()

    @property
    def total(self) -> list[int]:
        return [before + new for before, new in self.rows]

    def alone(self, row: int) -> "Case":
        spans = tuple((0, *span[1:]) for span in self.spans if span[0] == row)
        return replace(self, rows=(self.rows[row],), spans=spans)


@dataclass(frozen=True)
class Layer:
    """All tokens of all rows, and pages that hold those before the step; NaN elsewhere."""

    case: Case
    q: list[Tensor]  # of each row [total, heads, head_dim]
    k: list[Tensor]  # [total, kv_heads, head_dim]
    v: list[Tensor]
    sinks: Tensor | None
    storage: Storage
    page_table: NDArray[np.int64]

    def attend(
        self,
        rows: Sequence[tuple[int, int]] | None = None,
        through: Callable[[TritonAttention], TritonAttention] = lambda step: step,
    ) -> Tensor:
        """The kernels' output for the new tokens of all rows."""
        rows = rows or self.case.rows
        step = through(self._plan(rows))
        q, k, v = [
            torch.cat([x[before : before + new] for x, (before, new) in zip(xs, rows, strict=True)])
            for xs in (self.q, self.k, self.v)
        ]
        case = self.case
        params = AttentionParams(0.3, case.window, case.softcap, self.sinks, self.slopes)
        return step.attend(0, q, k, v, params)[..., : v.shape[-1]]

    @property
    def slopes(self) -> Tensor | None:
        if not self.case.slopes:
            return None
        return 0.5 ** torch.arange(1, self.case.heads + 1, device=self.q[0].device)

    def _plan(self, rows: Sequence[tuple[int, int]]) -> TritonAttention:
        from deployments.engine.kernels.gpu.attention_ops import Tiling

        before, new = np.array(rows, dtype=np.int64).T
        small = Tiling(
            queries=32, keys=16, min_split_keys=32, decode_heads=16, chunk_split_keys=32, stages=2
        )
        tiling = small if self.case.small_tiles else None
        return plan_triton_attention(
            self.storage, self.page_table, before + new, new, tiling,
            multiprocessors=self.case.multiprocessors,
            spans=np.array(self.case.spans, dtype=np.int64).reshape(-1, 4),
        )  # fmt: skip

    def expected(self) -> Tensor:
        """The same in float32, row by row, written out."""
        parts = [self._expected(row) for row in range(len(self.case.rows))]
        return torch.cat(parts)

    def _expected(self, row: int) -> Tensor:
        case = self.case
        before = case.rows[row][0]
        q, k, v = (x[row].float() for x in (self.q, self.k, self.v))
        share = case.heads // case.kv_heads
        scores = torch.einsum("thd,chd->htc", q[before:], k.repeat_interleave(share, 1)) * 0.3
        if case.softcap is not None:
            scores = case.softcap * torch.tanh(scores / case.softcap)
        key = torch.arange(len(k), device=k.device)
        distance = key[before:, None] - key
        if self.slopes is not None:
            scores = scores - self.slopes[:, None, None] * distance
        seen = distance >= 0
        for at, first, end, in_windows in case.spans:
            if at == row and (case.window is not None or not in_windows):
                seen[first:end, before + first : before + end] = True
        seen &= distance < (case.window or len(k) + 1)
        weights = scores.masked_fill(~seen, -torch.inf).exp()
        total = weights.sum(-1, keepdim=True)
        if self.sinks is not None:
            total = total + self.sinks.float().exp()[:, None, None]
        return torch.einsum("htc,chd->thd", weights / total, v.repeat_interleave(share, 1))


def lay_out(case: Case, device: str) -> Layer:
    """The same numbers for a row in whatever batch it is, but other pages."""
    dtype = getattr(torch, case.dtype)
    stored = torch.float8_e4m3fn if case.fp8_pages else dtype
    total = case.total
    q = [_tokens(case, n, case.heads, 0).to(dtype).to(device) for n in total]
    k = [_tokens(case, n, case.kv_heads, 1).to(stored).to(dtype).to(device) for n in total]
    v = [_tokens(case, n, case.kv_heads, 2).to(stored).to(dtype).to(device) for n in total]
    if case.value_dim is not None:
        v = [key[..., : case.value_dim] for key in k]
    width = max(1, *(-(-n // case.page_size) for n in total))
    table = np.random.default_rng(case.seed).permutation(len(total) * width + 1)
    layout = (LayerShape(case.kv_heads, case.head_dim, case.window, case.value_dim),)
    storage = Storage(layout, len(table), case.page_size, dtype=stored, device=device)
    layer = Layer(case, q, k, v, _sinks(case, device), storage, table[:-1].reshape(-1, width))
    n_stored = 2 if case.value_dim is None else 1
    for pages, known in [*zip(storage.layers[0], (k, v), strict=True)][:n_stored]:
        pages.copy_(_filled(layer, known).to(stored))
    return layer


def _filled(layer: Layer, known: Sequence[Tensor]) -> Tensor:
    """Pages with what is known of each row before the step."""
    case, shape = layer.case, layer.storage.k[0].shape
    pages = torch.full(shape, 0 if case.fp8_pages else torch.nan, dtype=known[0].dtype)
    slots = pages.flatten(0, 1)
    for row, (before, _) in enumerate(case.rows):
        page, offset = np.divmod(np.arange(before), case.page_size)
        slot = layer.page_table[row, page] * case.page_size + offset
        slots[torch.from_numpy(slot)] = known[row][:before].cpu()
    return pages


def _tokens(case: Case, n: int, heads: int, what: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * case.seed + 10 * n + what)
    return torch.randn(n, heads, case.head_dim, generator=generator)


def _sinks(case: Case, device: str) -> Tensor | None:
    if not case.sinks:
        return None
    return torch.randn(case.heads, generator=torch.Generator().manual_seed(case.seed)).to(device)


def error(case: Case, device: str = "cpu") -> float:
    """Returns the error of the kernels, relative to the norm; all numbers must be finite."""
    layer = lay_out(case, device)
    out, expected = layer.attend().float(), layer.expected()
    assert out.isfinite().all()
    return float((out - expected).norm() / expected.norm().clamp(min=1e-9))


def output(case: Case, device: str = "cpu") -> Tensor:
    return lay_out(case, device).attend().cpu()


def rows_that_differ_alone(case: Case, device: str = "cpu") -> list[int]:
    """Rows whose output alone is not, bit by bit, that in the batch."""
    ends = np.cumsum([new for _, new in case.rows])
    together = lay_out(case, device).attend()
    parts = together.tensor_split(torch.from_numpy(ends)[:-1])
    return [
        row
        for row, part in enumerate(parts)
        if len(part) and not torch.equal(part, lay_out(case.alone(row), device).attend())
    ]


def whole_and_chunked(case: Case, cuts: Sequence[int], device: str = "cpu") -> tuple[Tensor, ...]:
    """The output of a row's new tokens in one step, and in steps cut at these positions."""
    ((before, new),) = case.rows
    layer = lay_out(case, device)
    ends = [before, *cuts, before + new]
    pieces = [layer.attend([(a, b - a)]) for a, b in pairwise(ends)]
    return lay_out(case, device).attend().cpu(), torch.cat(pieces).cpu()


def slots_written(case: Case, device: str = "cpu") -> tuple[set[int], set[int]]:
    """Slots whose keys or values changed in the step, and slots of the new tokens."""
    layer = lay_out(case, device)
    before = layer.storage.k[0].nan_to_num(7.0).flatten(0, 1).clone()
    layer.attend()
    after = layer.storage.k[0].nan_to_num(7.0).flatten(0, 1)
    changed = (before != after).flatten(1).any(1).nonzero().flatten().tolist()
    size = case.page_size
    new = {
        int(layer.page_table[row, p // size]) * size + p % size
        for row, (start, n) in enumerate(case.rows)
        for p in range(start, start + n)
    }
    return set(changed), new
