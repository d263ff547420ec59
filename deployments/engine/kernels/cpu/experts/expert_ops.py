"""Calls the kernel of experts with bfloat16 tensors on a CPU."""

import torch
from torch import Tensor

from deployments.engine.kernels.cpu.dispatch import BARRIER, empty
from deployments.engine.kernels.cpu.experts.expert_kernels import experts_kernel
from deployments.engine.kernels.cpu.experts.expert_matrices import ExpertMatrices
from deployments.engine.kernels.cpu.matmul_ops import rows_per_task, way_of
from deployments.engine.kernels.experts import ExpertActivation


def routed(
    x: Tensor,  # [tokens, in]
    index: Tensor,  # int64 [tokens, k], numbers of experts; any other number is none
    weights: Tensor,  # bfloat16 or float32 [tokens, k], of their answers
    first: ExpertMatrices,
    down: ExpertMatrices,
    activation: ExpertActivation,
) -> Tensor:
    """The weighted sums of the experts' answers: [tokens, out]."""
    n, k = index.shape
    out = empty((n, down.n_out), x.dtype)
    if not n:
        return out
    activated = empty((n, k, down.n_in), x.dtype)
    x, index, weights = x.contiguous(), index.contiguous(), weights.contiguous()
    experts_kernel().call(
        n * k * (first.n_parts * first.n_out * first.n_in + down.n_out * down.n_in),
        x=x.data_ptr(),
        chosen=index.data_ptr(),
        weights=weights.data_ptr(),
        has_wide_weights=weights.dtype is torch.float32,
        out=out.data_ptr(),
        activated=activated.data_ptr(),
        n_tokens=n,
        k=k,
        n_experts=first.n_experts,
        matrix=first.arguments.ctypes.data,
        down=down.arguments.ctypes.data,
        rows_per_task=rows_per_task(n * k, max(first.n_in, down.n_in)),
        n_threads=torch.get_num_threads(),
        **way_of(n)._asdict(),
        barrier=BARRIER,
        activation=activation.kind,
        limit=activation.limit,
        slope=activation.slope,
        cube=activation.cube,
        shift=activation.shift,
    )
    return out
