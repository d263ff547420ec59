"""Rows for the kernel of top-p, and which of their tokens should stay, on whatever device."""

import torch

ASKED = ((0.0, 1), (0.05, 1), (0.5, 3), (0.9, 1), (0.9, 40), (0.999, 1), (0.3, 5000))  # top_p, min


def wrong_rows(vocab: int, spread: float, step: float, device: str = "cpu") -> list[int]:
    """Rows of which other tokens stayed than the first of a stably sorted one, or so many that
    their probabilities are not what was asked for. Logits are multiples of `step`, if there is one.
    """
    from deployments.engine.kernels.gpu.top_p_ops import top_p_

    generator = torch.Generator().manual_seed(vocab)
    logits = spread * torch.randn(len(ASKED) + 1, vocab, generator=generator)
    logits[1, torch.rand(vocab, generator=generator) < 0.9] = -torch.inf
    if step:
        logits = (logits / step).round() * step
    logits[-1] = -torch.inf
    top_p, min_keep = torch.tensor([*ASKED, (0.5, 1)]).chunk(2, dim=1)
    cut = logits.to(device, copy=True)
    top_p_(cut, top_p.contiguous().to(device), min_keep.contiguous().to(device))
    return [
        row
        for row, (p, n) in enumerate((*ASKED, (0.5, 1)))
        if not _is_right(logits[row], cut[row].cpu(), p, n)
    ]


def _is_right(row: torch.Tensor, kept: torch.Tensor, top_p: float, min_keep: int) -> bool:
    order = row.argsort(descending=True, stable=True)
    before = row.double().softmax(0)[order].cumsum(0).roll(1)
    before[0] = 0
    finite = int(row.isfinite().sum())
    fewest, most = (
        min(max(int((before < top_p + way).sum()), min_keep, 1), finite) for way in (-1e-5, 1e-5)
    )
    n_kept = int(kept.isfinite().sum())
    return fewest <= n_kept <= most and torch.equal(kept[order[:n_kept]], row[order[:n_kept]])
