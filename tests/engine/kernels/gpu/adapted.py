"""The products that adapters add, by the kernels for GPUs and by torch.

`added` is to be called where Triton is interpreted.
"""

import numpy as np
import torch

from deployments.engine.forward.adapters.gpu_target import GpuTarget
from deployments.engine.forward.adapters.rows import AdapterRows, StaticRows
from deployments.engine.forward.adapters.target import LoraLayerWeights, Target
from tests.adapters import step_with_adapters

N_IN, N_OUTS, N_SLOTS = 600, (80, 8, 8), 4  # more inputs than one program takes


def added(slots: list[int], new_len: list[int], dtype: str) -> tuple[float, bool]:
    """The largest difference of what is added to rows with these slots, for all outputs and for the
    last ones alone; and whether rows without a slot have their bits, and all rows those that they
    have in a captured step."""
    torch.manual_seed(0)
    kind: torch.dtype = getattr(torch, dtype)
    like = torch.empty(0, dtype=kind)
    targets = [target_type(N_IN, N_OUTS, N_SLOTS, 20, like) for target_type in (GpuTarget, Target)]
    for slot in range(1, N_SLOTS + 1):
        for part, n_out in enumerate(N_OUTS):
            a, b = torch.randn(5 * slot, N_IN) / 24, torch.randn(n_out, 5 * slot) / 8
            for target in targets if (slot, part) != (1, 1) else ():
                target.append(slot, part, LoraLayerWeights(a, b, 2.0), 0.5)
    step, device = step_with_adapters(slots, new_len), torch.device("cpu")
    rows = AdapterRows.from_step(step, N_SLOTS, device)
    static = StaticRows(N_SLOTS, sum(new_len) + 9, device)
    static.load(step)
    captured = static.view(sum(new_len) + 5)
    has_none = torch.from_numpy(np.repeat(np.array(slots), new_len) == 0)
    x, before = torch.randn(sum(new_len), N_IN).to(kind), torch.randn(sum(new_len), 96).to(kind)
    error, is_kept = 0.0, True
    for first in (0, N_OUTS[0]):
        outs = [before[:, first:].clone() for _ in targets]
        for target, out in zip(targets, outs, strict=True):
            target.expand_(out, target.shrink(x, rows), rows, first)
        error = max(error, (outs[0] - outs[1]).abs().max().item())
        is_kept &= torch.equal(outs[0][has_none], before[:, first:][has_none])
        again = before[:, first:].clone()
        targets[0].expand_(again, targets[0].shrink(x, captured), captured, first)
        is_kept &= torch.equal(again, outs[0])
    return error, is_kept
