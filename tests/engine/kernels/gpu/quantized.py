"""Errors of products of random quantized weights by the kernels for GPUs, on whatever device."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from transformers import Qwen3MoeConfig
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

from deployments.engine.forward.products.dequantized_linear import DequantizedLinear
from deployments.engine.forward.products.resident_matrix import ResidentMatrix
from deployments.engine.kernels.activations import GateActivation
from deployments.engine.quantized.layout import E2M1, E4M3, INT8, IQ4, Codebook, integers
from deployments.engine.quantized.quantized_rows import Factors, QuantizedRows
from deployments.engine.quantized.stored_weight import StoredWeight
from tests.engine.quantized.made import MadeMatrix, random_rows

NF4 = Codebook("nf4", tuple(torch.linspace(-1, 1, 16).pow(3).tolist()))
TWICE_E2M1 = Codebook("twice e2m1", tuple(2 * value for value in E2M1.values))


@dataclass(frozen=True)
class Quantized:
    """A matrix's layout and size, and the type of inputs.

    n_stored: inputs of the matrix, of which these are the first; 0: it has no others.
    """

    codebook: Codebook
    group: int = 32
    coarse_group: int = 0
    has_least: bool = False
    factors: str = "float16"
    fine: str = "uint8"
    dtype: str = "bfloat16"
    n_outputs: int = 24
    n_inputs: int = 128
    n_stored: int = 0
    has_order: bool = False


LAYOUTS = {
    "Q4_0": Quantized(integers(4, -8)),
    "Q4_1": Quantized(integers(4), has_least=True),
    "Q5_0": Quantized(integers(5, -16)),
    "Q8_0": Quantized(INT8),
    "Q2_K": Quantized(integers(2), 16, 256, has_least=True, n_inputs=256),
    "Q3_K": Quantized(integers(3, -4), 16, 256, fine="int8", n_inputs=256),
    "Q4_K": Quantized(integers(4), 32, 256, has_least=True, n_inputs=256),
    "Q5_K": Quantized(integers(5), 32, 256, has_least=True, n_inputs=256),
    "Q6_K": Quantized(integers(6, -32), 16, 256, fine="int8", n_inputs=256),
    "IQ4_XS": Quantized(IQ4, 32, 256, fine="int8", n_inputs=256),
    "MXFP4": Quantized(TWICE_E2M1, factors="bfloat16"),
    "NVFP4": Quantized(E2M1, 16, 256, fine="float8_e4m3fn", factors="float32", n_inputs=256),
    "NF4": Quantized(NF4, 64, factors="float32"),
    "fp8 by rows": Quantized(E4M3, 256, factors="float32", n_inputs=256),
    "fp8 by blocks": Quantized(E4M3, 128, factors="float32", n_inputs=256),
    "fp8 by halves of a slab": Quantized(E4M3, 64, factors="bfloat16"),
    "GPTQ": Quantized(integers(4, -8), 128, has_order=True, n_inputs=256),
    "GPTQ, a share": Quantized(integers(4, -8), 128, has_order=True, n_inputs=96, n_stored=256),
    "AWQ": Quantized(integers(4), 128, has_least=True, factors="float32", n_inputs=256),
    "W8A16": Quantized(integers(8, -128), 64, factors="bfloat16"),
    "8 bits from 0 on": Quantized(integers(8), 32),
    "7 bits": Quantized(integers(7, -64), 32, dtype="float16"),
    "Q5_0 of float16": Quantized(integers(5, -16), dtype="float16"),
    "Q8_0 of float16": Quantized(INT8, dtype="float16"),
    "MXFP4 of float16": Quantized(TWICE_E2M1, factors="bfloat16", dtype="float16"),
    "fp8 of float16": Quantized(E4M3, 256, factors="float32", dtype="float16", n_inputs=256),
    "Q4_K of float32": Quantized(
        integers(4), 32, 256, has_least=True, dtype="float32", n_inputs=256
    ),
    "Q8_0 of float32": Quantized(INT8, dtype="float32"),
    "Q4_0, part of a slab": Quantized(integers(4, -8), n_inputs=160),
    "Q8_0, part of a slab": Quantized(INT8, n_inputs=96),
    "Q4_0 in splits": Quantized(integers(4, -8), n_outputs=72, n_inputs=544),
    "Q4_K in splits": Quantized(integers(4), 32, 256, has_least=True, n_inputs=768),
}


def rows_of(case: Quantized) -> QuantizedRows:
    rows = random_rows(
        (case.n_outputs, case.n_stored or case.n_inputs),
        case.codebook,
        case.group,
        coarse_group=case.coarse_group,
        has_least=case.has_least,
        dtype=getattr(torch, case.factors),
    )
    if rows.scale.fine is None or case.fine == "uint8":
        return rows
    fine = (rows.scale.fine.to(torch.int8) - 32).to(getattr(torch, case.fine))
    return QuantizedRows(rows.codebook, rows.codes, Factors(rows.scale.coarse, fine), rows.least)


def weight_of(case: Quantized, rows: QuantizedRows) -> StoredWeight:
    shape = rows.codes.shape
    order = torch.randperm(shape[1]) if case.has_order else None
    weight = StoredWeight.of(MadeMatrix(rows, order), shape, getattr(torch, case.dtype))
    share = weight[:, : case.n_inputs]
    assert isinstance(share, StoredWeight)
    return share


def inputs_of(case: Quantized, tokens: int, device: str = "cpu") -> Tensor:
    random = torch.Generator().manual_seed(1)
    x = torch.randn(tokens, case.n_inputs, generator=random)
    return x.to(getattr(torch, case.dtype)).to(device)


def multiplied(case: Quantized, tokens: int, device: str = "cpu") -> tuple[float, list[int]]:
    """The error of a product, and which of some tokens have other bits with fewer tokens."""
    from deployments.engine.forward.products.slab_linear import SlabLinear
    from deployments.engine.forward.products.slab_matrix import SlabMatrix

    torch.manual_seed(0)
    weight = weight_of(case, rows_of(case))
    linear = SlabLinear(SlabMatrix(weight, torch.device(device)), None)
    x = inputs_of(case, tokens, device)
    found = linear(x)
    fewer = [(n, linear(x[:n])) for n in (1, 9) if n < tokens <= 32]
    differing = [n for n, part in fewer if not torch.equal(part, found[:n])]
    return error(found, x.float() @ weight.dequantize().to(device).T), differing


def read(case: Quantized, device: str = "cpu") -> list[str]:
    """How rows that are read differ from those that were stored."""
    from deployments.engine.forward.products.slab_matrix import SlabMatrix
    from deployments.engine.kernels.gpu import quantized_ops

    rows = rows_of(case)
    case = replace(case, has_order=False)  # no embedding has one
    matrix = SlabMatrix(weight_of(case, rows), torch.device(device))
    index = torch.tensor([7, 0, case.n_outputs - 1, 7])
    expected = rows.dequantize()[:, : case.n_inputs]
    of_index = matrix.numbers(index.to(device), torch.float32)
    whole = quantized_ops.dequantize(matrix.slabs, torch.float32, n=case.n_outputs)
    ids = index.view(2, 2).to(device)
    embedded = nn.functional.embedding(
        ids, weight_of(case, rows).over([matrix]).to(device, torch.float32)
    )
    found = {
        "embedding": torch.equal(embedded.cpu(), expected[index.view(2, 2)]),
        "rows": torch.equal(matrix.rows(index.to(device)).dequantize().cpu(), expected[index]),
        "index": torch.equal(of_index.cpu(), expected[index]),
        "whole": torch.equal(whole.cpu(), expected),
    }
    return [name for name, is_same in found.items() if not is_same]


def with_all_else(dtype: str, tokens: int, device: str = "cpu") -> dict[str, float]:
    """Errors of products with a bias, with a sum, side by side, and of gated ones."""
    from deployments.engine.forward.products.joined_linear import JoinedLinear
    from deployments.engine.forward.products.slab_linear import SlabLinear
    from deployments.engine.forward.products.slab_matrix import SlabMatrix

    case = Quantized(integers(4, -8), dtype=dtype, n_outputs=40, n_inputs=512)
    weight, x = weight_of(case, rows_of(case)), inputs_of(case, tokens, device)
    bias, other = torch.randn(40).to(x.dtype).to(device), torch.randn(tokens, 40).to(x.dtype)
    matrix = SlabMatrix(weight, torch.device(device))
    joined = JoinedLinear([SlabLinear(matrix, None), SlabLinear(matrix, bias)])
    plain = x.float() @ weight.dequantize().to(device).T
    gate, up = plain.chunk(2, 1)
    other = other.to(device)
    summed = SlabLinear(matrix, bias).add(x, other.clone())
    return {
        "bias": error(SlabLinear(matrix, bias)(x), plain + bias.float()),
        "sum": error(summed, plain + bias.float() + other.float()),
        "joined": error(joined(x[None])[0], torch.cat([plain, plain + bias.float()], 1)),
        **{
            kind.name: error(SlabLinear(matrix, None).gated(kind, x), kind(gate) * up)
            for kind in GateActivation
        },
    }


def experts_answered(tokens: int, dtype: str, device: str = "cpu") -> tuple[float, list[int]]:
    """The error of quantized experts, of which one token has none; and which of some tokens have
    other bits with fewer tokens. Half of the experts' weights have orders of inputs."""
    from deployments.engine.forward.products.experts import (
        SeparateExperts,
        experts_forward,
        parts_of_experts,
    )
    from deployments.engine.forward.products.slab_experts import SlabExperts, take_slabs
    from deployments.engine.forward.products.slab_matrix import SlabMatrix

    torch.manual_seed(0)
    kind: torch.dtype = getattr(torch, dtype)
    config = Qwen3MoeConfig(num_experts=4, hidden_size=64, moe_intermediate_size=32)
    cases = {
        "gate_up_proj": replace(LAYOUTS["Q4_1"], dtype=dtype, n_outputs=64, n_inputs=64),
        "down_proj": replace(
            LAYOUTS["GPTQ, a share"],
            dtype=dtype,
            n_outputs=64,
            n_inputs=32,
            n_stored=64,
            group=32,
        ),
    }
    answers, on_device = [], torch.device(device)
    hidden = torch.randn(tokens, 64).to(kind).to(device)
    index = torch.rand(tokens, 4).topk(2).indices.to(device)
    index[0, 1], shares = 4, torch.rand(tokens, 2).to(kind).to(device)
    weights = {name: experts_of(case, 4) for name, case in cases.items()}
    for is_grouped in (False, True):
        experts = Qwen3MoeExperts(config)
        for name, weight in weights.items():
            del experts._parameters[name]
            if is_grouped:
                parts = parts_of_experts(weight) or []
                slabs = [SlabMatrix(part, on_device) for part in parts]
                experts.add_module(name, SlabExperts(slabs, 4))
            else:
                matrices = [ResidentMatrix(weight.matrix(n), on_device) for n in range(4)]
                linears = [DequantizedLinear(matrix, None) for matrix in matrices]
                experts.add_module(name, SeparateExperts(linears))
        if not is_grouped:
            answers.append(experts_forward(experts, hidden.float(), index, shares.float()))
            continue
        take_slabs(experts)
        answers.append(experts_forward(experts, hidden, index, shares))
        fewer = [(n, experts_forward(experts, hidden[:n], index[:n], shares[:n])) for n in (1, 3)]
    differing = [n for n, part in fewer if not torch.equal(part, answers[-1][:n])]
    return error(answers[1], answers[0]), differing


def experts_of(case: Quantized, n: int) -> StoredWeight:
    """Experts [n, outputs, inputs], whose rows differ."""
    rows = rows_of(replace(case, n_outputs=n * case.n_outputs))
    whole = replace(case, n_inputs=rows.codes.shape[1])
    at = [slice(k * case.n_outputs, (k + 1) * case.n_outputs) for k in range(n)]
    experts = torch.stack([weight_of(whole, rows.take(own)) for own in at])[..., : case.n_inputs]
    assert isinstance(experts, StoredWeight)
    return experts


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())
