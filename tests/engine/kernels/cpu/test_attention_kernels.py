"""Attention of the CPU's own kernels beside what is right, and a token beside others as alone."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from deployments.engine.attention.cpu import CpuAttention, plan_cpu_attention
from deployments.engine.attention.cpu_rows import MAX_QUERIES_PER_TASK, MIN_SPLITS_PER_THREAD
from deployments.engine.attention.interface import AttentionParams
from deployments.engine.kernels.cpu.attention_kernels import KEYS_PER_SPLIT
from deployments.engine.kernels.cpu.chunk_kernels import KEYS_PER_BLOCK
from deployments.engine.kernels.cpu.features import has_matmul_kernels
from deployments.engine.limits import MAX_DRAFTED_STEP_CPU
from kv.layout import alike
from kv.storage import Storage
from tests.effort import tries

PAGE, KV_HEADS, DIM = 16, 2, 32
ULP = 2**-7  # of bfloat16, relative
KINDS = [(None, None, False), (20, None, False), (None, 2.0, False), (20, 5.0, True)]
SHAPES = [(6, 32), (6, 70), (80, 30), *tries([], [(2, 32), (10, 24), (4, 80)])]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(5)


@pytest.fixture
def chunk_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are given to kernels of ours, also where torch has instructions for them."""
    if not has_matmul_kernels():
        pytest.skip("no kernels of ours multiply here")
    monkeypatch.setattr("deployments.engine.attention.cpu.has_bf16_tiles", lambda: False)


def some(*shape: int) -> Tensor:
    return torch.randn(shape).bfloat16()


class Batch:
    """Rows of contexts of several lengths, their pages all over the storage."""

    def __init__(
        self, lengths: list[int], heads: int, dim: int = DIM, page_size: int = PAGE
    ) -> None:
        self.lengths = np.array(lengths)
        width = -(-max(lengths) // page_size)
        pages = len(lengths) * width
        self.storage = Storage(alike(1, KV_HEADS, dim), pages, page_size, dtype=torch.bfloat16)
        self.storage.k[0].normal_()
        self.storage.v[0].normal_()
        rng = np.random.default_rng(3)
        self.table = rng.permutation(len(lengths) * width).reshape(len(lengths), width)
        self.q = some(len(lengths), heads, dim)
        self.new = [some(len(lengths), KV_HEADS, dim) for _ in "kv"]

    def attend(self, rows: list[int], **options: Any) -> Tensor:
        """Returns the attention of one new token of each row."""
        ones = np.ones(len(rows), np.int64)
        step = plan_cpu_attention(self.storage, self.table[rows], self.lengths[rows], ones)
        k, v = (new[rows] for new in self.new)
        return step.attend(0, self.q[rows], k, v, AttentionParams(0.3, **options))

    def expected(
        self,
        row: int,
        q: Tensor,  # [heads, dim]
        n: int,  # tokens of the row up to this one
        window: int | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
        slopes: Tensor | None = None,
    ) -> Tensor:
        begin = 0 if window is None else max(0, n - window)
        k, v = (
            of[0][self.table[row]].flatten(0, 1)[begin:n].double()
            for of in (self.storage.k, self.storage.v)
        )
        k, v = (tensor.repeat_interleave(len(q) // KV_HEADS, 1) for tensor in (k, v))
        scores = torch.einsum("hd,thd->ht", q.double(), k) * 0.3
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        if slopes is not None:
            distance = torch.arange(1 - scores.shape[1], 1, dtype=torch.float64)
            scores = scores + slopes[:, None].double() * distance
        if sinks is not None:
            scores = torch.cat([scores, sinks[:, None].double()], 1)
        weights = scores.softmax(1)[:, : len(k)]
        return torch.einsum("ht,thd->hd", weights, v)


def attend_to_their_own_contexts(
    lengths: list[int], heads: int, dim: int, window: int | None, softcap: float | None, sunk: bool
) -> None:
    batch, rows = Batch(lengths, heads, dim), list(range(len(lengths)))
    options: dict[str, Any] = {
        "window": window,
        "softcap": softcap,
        "sinks": some(heads) if sunk else None,
        "slopes": torch.rand(heads) if sunk else None,
    }
    # So many that a task is of all heads, and one alone, whose tasks are of a head each.
    many = rows * -(-MIN_SPLITS_PER_THREAD * torch.get_num_threads() // len(rows))
    together = batch.attend(many, **options)
    for row in rows:
        expected = batch.expected(row, batch.q[row], lengths[row], **options)
        torch.testing.assert_close(together[row].double(), expected, rtol=2 * ULP, atol=2e-3)
        assert torch.equal(batch.attend([row], **options)[0], together[row])


@pytest.mark.parametrize(("heads", "dim"), SHAPES)
@pytest.mark.parametrize(("window", "softcap", "sunk"), KINDS)
def test_single_tokens_attend_to_their_own_context(
    heads: int, dim: int, window: int | None, softcap: float | None, sunk: bool
) -> None:
    lengths = [1, 15, 16, 17, 40, 333, 2, 64, 100]
    attend_to_their_own_contexts(lengths, heads, dim, window, softcap, sunk)


@pytest.mark.parametrize(("heads", "dim"), [(6, 32), (10, 24)])
@pytest.mark.parametrize(
    ("window", "softcap", "sunk"),
    [*KINDS, (KEYS_PER_SPLIT, None, True), (KEYS_PER_SPLIT + 9, None, False)],
)
def test_long_contexts_are_attended_to_in_splits(
    heads: int, dim: int, window: int | None, softcap: float | None, sunk: bool
) -> None:
    lengths = [
        KEYS_PER_SPLIT - 1,
        KEYS_PER_SPLIT,
        KEYS_PER_SPLIT + 1,
        2 * KEYS_PER_SPLIT + 20,
        7,
        4 * KEYS_PER_SPLIT,
    ]
    attend_to_their_own_contexts(lengths, heads, dim, window, softcap, sunk)


def test_single_tokens_share_a_step_with_chunks() -> None:
    batch, n = Batch([50, 70, 90], 4), MAX_DRAFTED_STEP_CPU + 1
    alone = batch.attend([0, 2])
    new_len = np.array([1, n, 1])
    step = plan_cpu_attention(batch.storage, batch.table, batch.lengths, new_len)
    q = torch.cat([batch.q[:1], some(n, 4, DIM), batch.q[2:]])
    k, v = (torch.cat([new[:1], some(n, KV_HEADS, DIM), new[2:]]) for new in batch.new)
    assert torch.equal(step.attend(0, q, k, v, AttentionParams(0.3))[[0, -1]], alone)


@pytest.mark.parametrize("window", [None, 20])
def test_few_tokens_of_a_row_attend_as_one_after_the_other(window: int | None) -> None:
    batch, new_len = Batch([50, 70, 90], 4), np.array([1, 5, MAX_DRAFTED_STEP_CPU])
    rows = np.repeat(np.arange(3), new_len)
    q, k, v = (some(len(rows), heads, DIM) for heads in (4, KV_HEADS, KV_HEADS))
    step = plan_cpu_attention(batch.storage, batch.table, batch.lengths, new_len)
    together = step.attend(0, q, k, v, AttentionParams(0.3, window))
    seen = np.concatenate(
        [np.arange(end - n, end) + 1 for end, n in zip(batch.lengths, new_len, strict=True)]
    )
    for at, row in enumerate(rows):
        table, length = batch.table[[row]], seen[[at]]
        step = plan_cpu_attention(batch.storage, table, length, np.ones(1, np.int64))
        alone = step.attend(0, q[[at]], k[[at]], v[[at]], AttentionParams(0.3, window))
        assert torch.equal(together[[at]], alone)


class Chunks(Batch):
    """Rows of which the last tokens are new, several of each."""

    def __init__(
        self,
        lengths: list[int],
        new_len: list[int],
        heads: int,
        dim: int = DIM,
        page_size: int = PAGE,
    ) -> None:
        super().__init__(lengths, heads, dim, page_size)
        self.new_len = new_len
        self.queries = [some(n, heads, dim) for n in new_len]
        self.keys, self.values = ([some(n, KV_HEADS, dim) for n in new_len] for _ in "kv")

    def attend_spans(self, spans: list[tuple[int, int, int, int]]) -> list[Tensor]:
        """All new tokens, of which those of a span see each other."""
        new = np.array(self.new_len)
        step = plan_cpu_attention(self.storage, self.table, self.lengths, new, 0, np.array(spans))
        q, k, v = (torch.cat(of) for of in (self.queries, self.keys, self.values))
        return [*torch.split(step.attend(0, q, k, v, AttentionParams(0.3)), self.new_len)]

    def attend_chunks(self, rows: list[int], first: int, last: int, **options: Any) -> list[Tensor]:
        """The new tokens [first, last) of each row, as far as it has them."""
        ends = [(min(first, self.new_len[row]), min(last, self.new_len[row])) for row in rows]
        q, k, v = [
            torch.cat([of[row][slice(*end)] for row, end in zip(rows, ends, strict=True)])
            for of in (self.queries, self.keys, self.values)
        ]
        begin, end = np.array(ends).T
        new = end - begin
        total = self.lengths[rows] - np.array(self.new_len)[rows] + end
        step = plan_cpu_attention(self.storage, self.table[rows], total, new)
        assert isinstance(step, CpuAttention)
        assert not step.padded
        out = step.attend(0, q, k, v, AttentionParams(0.3, **options))
        return [*torch.split(out, new.tolist())]


@pytest.mark.usefixtures("chunk_kernels")
@pytest.mark.parametrize(("heads", "dim"), SHAPES)
@pytest.mark.parametrize(("window", "softcap", "sunk"), [*KINDS, (KEYS_PER_BLOCK + 3, None, False)])
def test_chunks_attend_to_their_own_contexts(
    heads: int, dim: int, window: int | None, softcap: float | None, sunk: bool
) -> None:
    new_len = [MAX_DRAFTED_STEP_CPU + 1, 60, 200, MAX_QUERIES_PER_TASK, 130]
    batch = Chunks(
        [MAX_DRAFTED_STEP_CPU + 1, 75, 333, KEYS_PER_BLOCK + MAX_QUERIES_PER_TASK, 130],
        new_len,
        heads,
        dim,
    )
    options: dict[str, Any] = {"window": window, "softcap": softcap}
    options["sinks"] = some(heads) if sunk else None
    options["slopes"] = torch.rand(heads) if sunk else None
    rows = list(range(len(new_len)))
    together = batch.attend_chunks(rows, 0, 1000, **options)
    for row, n in enumerate(new_len):
        before = int(batch.lengths[row]) - n
        for token in {0, 1, n // 2, n - 1}:
            found = together[row][token].double()
            q, seen = batch.queries[row][token], before + token + 1
            expected = batch.expected(row, q, seen, **options)
            torch.testing.assert_close(found, expected, rtol=2 * ULP, atol=2e-3)
        assert torch.equal(batch.attend_chunks([row], 0, 1000, **options)[0], together[row])


@pytest.mark.usefixtures("chunk_kernels")
@pytest.mark.parametrize("page_size", [1, 24, KEYS_PER_BLOCK + 72])
def test_pages_may_be_of_any_size(page_size: int) -> None:
    batch = Chunks([333, 40], [200, 40], 6, page_size=page_size)
    together = batch.attend_chunks([0, 1], 0, 1000, window=150)
    for row, n in enumerate(batch.new_len):
        before = int(batch.lengths[row]) - n
        for token in (0, n // 2, n - 1):
            q, seen = batch.queries[row][token], before + token + 1
            expected = batch.expected(row, q, seen, window=150)
            torch.testing.assert_close(
                together[row][token].double(), expected, rtol=2 * ULP, atol=2e-3
            )


@pytest.mark.usefixtures("chunk_kernels")
def test_chunks_of_odd_width_are_left_to_torch() -> None:
    batch, new_len = Batch([40], 4, 31), np.array([MAX_DRAFTED_STEP_CPU + 1])
    assert plan_cpu_attention(batch.storage, batch.table, batch.lengths, new_len).padded


@pytest.mark.usefixtures("chunk_kernels")
@pytest.mark.parametrize("window", [None, 50])
def test_a_prompt_in_chunks_attends_as_the_whole(window: int | None) -> None:
    batch = Chunks([300, 150], [300, 100], 6)
    whole = batch.attend_chunks([0, 1], 0, 1000, window=window)
    ends = [0, 17, 65, 83, 300]
    chunks = [
        batch.attend_chunks([0], *ends[at : at + 2], window=window) for at in range(len(ends) - 1)
    ]
    assert torch.equal(torch.cat([output for [output] in chunks]), whole[0])


@pytest.mark.usefixtures("chunk_kernels")
@pytest.mark.parametrize("window", [None, 40])
def test_what_is_no_number_stays_with_its_row(window: int | None) -> None:
    batch = Chunks([KEYS_PER_BLOCK + 70, 90], [100, 90], 6)
    clean = batch.attend_chunks([0, 1], 0, 1000, window=window)
    none = float("nan")
    batch.storage.v[0][batch.table[1]] = none
    batch.values[1][:] = none
    last = batch.table[0, (KEYS_PER_BLOCK + 69) // PAGE]
    batch.storage.v[0][last, (KEYS_PER_BLOCK + 70) % PAGE :] = none  # behind the last token
    if window is not None:
        batch.storage.v[0][batch.table[0, :2]] = none  # what nobody sees any more
    found = batch.attend_chunks([0, 1], 0, 1000, window=window)
    assert torch.equal(found[0], clean[0])
    assert found[1].isnan().all()


@pytest.mark.usefixtures("chunk_kernels")
def test_tokens_of_a_span_see_each_other_and_rows_without_one_are_as_ever() -> None:
    batch = Chunks([41, 9, 300, 120, 90], [1, 8, 200, 60, 90], 6)
    spans = [(2, 150, 200, 0), (1, 2, 7, 0), (2, 0, 100, 0), (4, 0, 90, 1)]
    found = batch.attend_spans(spans)
    for row, n in enumerate(batch.new_len):
        before = int(batch.lengths[row]) - n
        for token in {0, 1, n // 2, n - 1}.intersection(range(n)):
            ends = [
                end
                for at, first, end, off in spans
                if at == row and not off and first <= token < end
            ]
            seen = before + max([token + 1, *ends])
            expected = batch.expected(row, batch.queries[row][token], seen)
            torch.testing.assert_close(
                found[row][token].double(), expected, rtol=2 * ULP, atol=2e-3
            )
    for row in (0, 3):
        assert torch.equal(found[row], batch.attend_chunks([row], 0, 1000)[0])
