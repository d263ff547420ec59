"""Writes random quantized weights in each storage format, with the numbers that they stand for.

Nothing here is shared with what reads them: codes are packed bit by bit, and weights are computed
from the whole numbers that were drawn."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

AWQ_FIELDS = (0, 2, 4, 6, 1, 3, 5, 7)  # the output of each field of a word
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
SCALE = 0.04  # of random scales


@dataclass
class Written:
    """A weight.

    tensors: by the ends of their names, behind the module's.
    weight: float32 of the parameter's shape.
    """

    tensors: dict[str, Tensor]
    weight: Tensor


@dataclass(frozen=True)
class Writer:
    """A storage format with its options in a config.

    write: by a generator and the parameter's shape.
    ends: of the names of parameters that are written so.
    """

    write: Callable[..., Written]
    options: Mapping[str, Any] = field(default_factory=dict)
    ends: tuple[str, ...] = ("_proj.weight",)


def packed(codes: Tensor, bits: int) -> Tensor:
    """int32 [..., words] of whole numbers [..., n], lowest bits first."""
    single = (codes.numpy()[..., None] >> np.arange(bits) & 1).astype(np.uint8)
    flat = single.reshape(*codes.shape[:-1], -1)
    filled = np.pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, -flat.shape[-1] % 32)])
    packed_bytes = np.packbits(filled, axis=-1, bitorder="little")
    return torch.from_numpy(np.ascontiguousarray(packed_bytes).view(np.int32))


def awq_packed(codes: Tensor) -> Tensor:
    words = codes.view(*codes.shape[:-1], -1, 8).to(torch.int64)
    joined = sum(words[..., output] << 4 * place for place, output in enumerate(AWQ_FIELDS))
    assert isinstance(joined, Tensor)
    return (joined - (joined >> 31 << 32)).to(torch.int32).contiguous()


def draw(random: torch.Generator, high: int, *shape: int) -> Tensor:
    return torch.randint(0, high, shape, generator=random)


def scales(random: torch.Generator, *shape: int, dtype: torch.dtype = torch.float16) -> Tensor:
    return torch.rand(shape, generator=random).add_(0.5).mul_(SCALE).to(dtype)


def e4m3(random: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(shape, generator=random).mul_(4).to(torch.float8_e4m3fn)


def exponents(random: torch.Generator, *shape: int) -> Tensor:
    return (draw(random, 3, *shape) + 120).to(torch.uint8)


def integer(
    random: torch.Generator, n_out: int, n_in: int, bits: int, group: int, symmetric: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Codes, zeros and scales."""
    n_groups = -(-n_in // group)
    zeros = draw(random, 1 << bits, n_out, n_groups)
    if symmetric:
        zeros[:] = 1 << bits - 1
    by_bits = 16 / (1 << bits)
    scale = scales(random, n_out, n_groups).mul_(by_bits)
    return draw(random, 1 << bits, n_out, n_in), zeros, scale


def gptq(
    bits: int = 4,
    group: int = 32,
    *,
    symmetric: bool = True,
    v2: bool = False,
    stored_as_v2: bool | None = None,
    desc_act: bool = False,
    by_seed: bool = False,
) -> Writer:
    """stored_as_v2: where it is not as the config says. by_seed: each has another order."""

    def write(random: torch.Generator, n_out: int, n_in: int) -> Written:
        codes, zeros, scale = integer(random, n_out, n_in, bits, group, symmetric)
        group_of = torch.arange(n_in) // group
        if desc_act:
            own = random if by_seed else torch.Generator().manual_seed(n_in)
            group_of = group_of[torch.randperm(n_in, generator=own)]
        as_is = v2 if stored_as_v2 is None else stored_as_v2
        words = packed(zeros.t(), bits)
        if bits == 3 and not as_is:
            words = packed((zeros.t() - 1) % 8, 3)
        elif not as_is:  # the words less the words of zeros that are all 1
            words = (words.long() - packed(torch.ones_like(zeros.t()), bits)).int()
        tensors = {
            ".qweight": packed(codes, bits).t().contiguous(),
            ".qzeros": words,
            ".scales": scale.t().contiguous(),
            ".g_idx": group_of.int(),
        }
        return Written(tensors, (codes - zeros[:, group_of]).float() * scale[:, group_of].float())

    options = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group,
        "sym": symmetric,
        "desc_act": desc_act,
        "checkpoint_format": "gptq_v2" if v2 else "gptq",
    }
    return Writer(write, options)


def awq(group: int = 32) -> Writer:
    def write(random: torch.Generator, n_out: int, n_in: int) -> Written:
        codes, zeros, scale = integer(random, n_out, n_in, 4, group, False)
        tensors = {
            ".qweight": awq_packed(codes.t()),
            ".qzeros": awq_packed(zeros.t()),
            ".scales": scale.t().contiguous(),
        }
        group_of = torch.arange(n_in) // group
        return Written(tensors, (codes - zeros[:, group_of]).float() * scale[:, group_of].float())

    return Writer(write, {"quant_method": "awq", "bits": 4, "version": "gemm", "zero_point": True})


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups}


def packed_integers(
    bits: int = 4,
    group: int = 32,
    *,
    symmetric: bool = True,
    actorder: bool = False,
    dtype: torch.dtype = torch.bfloat16,
) -> Writer:
    """group: 0: a scale for each output."""

    def write(random: torch.Generator, n_out: int, n_in: int) -> Written:
        size = group or n_in
        codes, zeros, scale = integer(random, n_out, n_in, bits, size, symmetric)
        scale = scale.to(dtype)
        group_of = torch.arange(n_in) // size
        tensors = {
            ".weight_packed": packed(codes, bits),
            ".weight_scale": scale,
            ".weight_shape": torch.tensor([n_out, n_in]),
        }
        if not symmetric:
            tensors[".weight_zero_point"] = packed(zeros.t(), bits).t().contiguous()
        if actorder:
            group_of = group_of[torch.randperm(n_in, generator=torch.Generator().manual_seed(n_in))]
            tensors[".weight_g_idx"] = group_of.int()
        return Written(tensors, (codes - zeros[:, group_of]).float() * scale[:, group_of].float())

    return Writer(write, compressed("pack-quantized", num_bits=bits, type="int"))


def spread(scale: Tensor, block: tuple[int, int], shape: tuple[int, int]) -> Tensor:
    """The scale of each weight."""
    by_row = scale.float().repeat_interleave(block[0], -2)[..., : shape[0], :]
    return by_row.repeat_interleave(block[1], -1)[..., : shape[1]]


def fp8(
    block: tuple[int, int] | None = None,
    *,
    by_output: bool = False,
    method: str = "fp8",
    dtype: torch.dtype = torch.float32,
) -> Writer:
    """block: of outputs and inputs that share a scale; None: all weights do, or an output's."""

    def write(random: torch.Generator, n_out: int, n_in: int) -> Written:
        codes = e4m3(random, n_out, n_in)
        size = block or ((1 if by_output else n_out), n_in)
        shape = -(-n_out // size[0]), -(-n_in // size[1])
        scale = scales(random, *shape, dtype=torch.float32)
        if dtype is torch.float8_e8m0fnu:
            scale = exponents(random, *shape).view(dtype)
        scale = scale.to(dtype)
        weight = codes.float() * spread(scale, size, (n_out, n_in))
        stored = scale if block or by_output else scale.reshape(())
        end = ".weight_scale_inv" if block and method == "fp8" else ".weight_scale"
        tensors = {".weight": codes, end: stored, ".input_scale": torch.tensor(0.5)}
        return Written(tensors, weight)

    options: dict[str, Any] = {"quant_method": method, "weight_block_size": block and [*block]}
    if method == "compressed-tensors":
        options = compressed("float-quantized", type="float", block_structure=block and [*block])
    return Writer(write, options)


def renamed(writer: Writer, old: str, new: str) -> Writer:
    """The same with another name of a tensor."""

    def write(random: torch.Generator, n_out: int, n_in: int) -> Written:
        made = writer.write(random, n_out, n_in)
        made.tensors[new] = made.tensors.pop(old)
        return made

    return Writer(write, writer.options)


def mxfp8() -> Writer:
    def write(random: torch.Generator, n_out: int, n_in: int) -> Written:
        codes, scale = e4m3(random, n_out, n_in), exponents(random, n_out, n_in // 32)
        weight = codes.float() * torch.exp2(scale.float() - 127).repeat_interleave(32, 1)
        return Written({".weight": codes, ".weight_scale": scale}, weight)

    return Writer(write, compressed("mxfp8-quantized", num_bits=8, type="float"))


def int8(*, symmetric: bool = True) -> Writer:
    def write(random: torch.Generator, n_out: int, n_in: int) -> Written:
        codes = (draw(random, 256, n_out, n_in) - 128).to(torch.int8)
        zeros = (draw(random, 20, n_out, 1) - 10).to(torch.int8) * (not symmetric)
        scale = scales(random, n_out, 1, dtype=torch.bfloat16) / 16
        tensors = {".weight": codes, ".weight_scale": scale}
        if not symmetric:
            tensors[".weight_zero_point"] = zeros
        return Written(tensors, (codes.float() - zeros.float()) * scale.float())

    return Writer(write, compressed("int-quantized", num_bits=8, type="int"))


def fp4_packed(codes: Tensor) -> Tensor:
    return (codes[..., ::2] | codes[..., 1::2] << 4).to(torch.uint8)


def mxfp4() -> Writer:
    def write(random: torch.Generator, n_out: int, n_in: int) -> Written:
        codes, scale = draw(random, 16, n_out, n_in), exponents(random, n_out, n_in // 32)
        weight = E2M1[codes] * torch.exp2(scale.float() - 127).repeat_interleave(32, 1)
        tensors = {".weight_packed": fp4_packed(codes), ".weight_scale": scale}
        return Written(tensors, weight)

    return Writer(write, compressed("mxfp4-pack-quantized", num_bits=4, type="float"))


def nvfp4(*, modelopt: bool = False) -> Writer:
    def write(random: torch.Generator, n_out: int, n_in: int) -> Written:
        codes, scale = draw(random, 16, n_out, n_in), e4m3(random, n_out, n_in // 16)
        factor = scales(random, 1, dtype=torch.float32) / 4
        weight = E2M1[codes] * (factor * scale.float()).repeat_interleave(16, 1)
        if modelopt:
            tensors = {".weight": fp4_packed(codes), ".weight_scale": scale}
            return Written(tensors | {".weight_scale_2": factor.reshape(())}, weight)
        whole = 1 / factor
        weight = E2M1[codes] * (1 / whole * scale.float()).repeat_interleave(16, 1)
        tensors = {".weight_packed": fp4_packed(codes), ".weight_scale": scale}
        return Written(tensors | {".weight_global_scale": whole}, weight)

    if modelopt:
        return Writer(write, {"quant_method": "modelopt", "quant_algo": "NVFP4"})
    return Writer(write, compressed("nvfp4-pack-quantized", num_bits=4, type="float"))


def gpt_oss() -> Writer:
    """Experts [experts, inputs, outputs]."""

    def write(random: torch.Generator, n: int, n_in: int, n_out: int) -> Written:
        made = mxfp4().write(random, n * n_out, n_in)
        blocks = made.tensors[".weight_packed"].view(n, n_out, n_in // 32, 16)
        scale = made.tensors[".weight_scale"].view(n, n_out, n_in // 32)
        weight = made.weight.view(n, n_out, n_in).mT
        return Written({"_blocks": blocks, "_scales": scale}, weight)

    return Writer(write, {"quant_method": "mxfp4"}, (".gate_up_proj", ".down_proj"))


def nf4(*, nested: bool = False) -> Writer:
    table = torch.linspace(-1, 1, 16).float()

    def write(random: torch.Generator, n_out: int, n_in: int) -> Written:
        codes, n_blocks = draw(random, 16, n_out, n_in), n_out * n_in // 64
        flat = codes.flatten()
        tensors = {
            ".weight": (flat[::2] << 4 | flat[1::2]).to(torch.uint8)[:, None],
            ".weight.quant_map": table.clone(),
        }
        state = {"quant_type": "nf4", "blocksize": 64, "shape": [n_out, n_in], "dtype": "bfloat16"}
        if nested:
            values, outer = torch.rand(256, generator=random), scales(random, -(-n_blocks // 256))
            own = draw(random, 256, n_blocks).to(torch.uint8)
            nested_of = outer.float()[torch.arange(n_blocks) // 256]
            absmax = values[own.int()] * nested_of + 0.25
            state |= {"nested_blocksize": 256, "nested_offset": 0.25}
            tensors |= {
                ".weight.absmax": own,
                ".weight.nested_absmax": outer.float(),
                ".weight.nested_quant_map": values,
            }
        else:
            tensors[".weight.absmax"] = absmax = scales(random, n_blocks, dtype=torch.float32)
        text = json.dumps(state).encode()
        tensors[".weight.quant_state.bitsandbytes__nf4"] = torch.tensor([*text]).to(torch.uint8)
        weight = table[codes].view(-1, 64) * absmax[:, None]
        return Written(tensors, weight.view(n_out, n_in))

    return Writer(write, {"quant_method": "bitsandbytes", "load_in_4bit": True})


def bnb_int8() -> Writer:
    def write(random: torch.Generator, n_out: int, n_in: int) -> Written:
        codes = (draw(random, 256, n_out, n_in) - 128).to(torch.int8)
        scb = scales(random, n_out, dtype=torch.float32) * 4
        tensors = {".weight": codes, ".SCB": scb, ".weight_format": torch.tensor(0).byte()}
        return Written(tensors, codes.float() * (scb / 127)[:, None])

    return Writer(write, {"quant_method": "bitsandbytes", "load_in_8bit": True})


def auto_round(packing: str, writer: Writer) -> Writer:
    options = {"quant_method": "auto-round", "packing_format": packing, "data_type": "int"}
    return Writer(writer.write, {**writer.options, **options})


WRITERS: Mapping[str, Writer] = {
    "fp8, one scale": fp8(),
    "fp8 by output": fp8(by_output=True, method="fbgemm_fp8"),
    "fp8 in blocks": fp8((32, 32)),
    "fp8 in blocks, bf16": fp8((128, 128), dtype=torch.bfloat16),
    "fp8 in blocks, e8m0": fp8((48, 32), dtype=torch.float8_e8m0fnu),
    "fp8 with older names": renamed(fp8((32, 32)), ".weight_scale_inv", ".scale"),
    "fp8 with names of Mistral's": renamed(fp8(), ".weight_scale", ".qscale_weight"),
    "mxfp8": mxfp8(),
    "fp8 of modelopt": fp8(method="modelopt"),
    "float-quantized": fp8(by_output=True, method="compressed-tensors"),
    "float-quantized in blocks": fp8((32, 64), method="compressed-tensors"),
    "int-quantized": int8(),
    "int-quantized, asymmetric": int8(symmetric=False),
    "w4a16": packed_integers(),
    "w4a16, asymmetric": packed_integers(symmetric=False),
    "w4a16 by output": packed_integers(group=0),
    "w4a16 with actorder": packed_integers(actorder=True, symmetric=False),
    "w8a16": packed_integers(8, dtype=torch.float16),
    "w8a16 by output, asymmetric": packed_integers(8, 0, symmetric=False),
    "w3a16": packed_integers(3),
    "w2a16": packed_integers(2),
    "mxfp4-pack-quantized": mxfp4(),
    "nvfp4-pack-quantized": nvfp4(),
    "nvfp4 of modelopt": nvfp4(modelopt=True),
    "awq": awq(),
    "awq, other groups": awq(64),
    "gptq": gptq(),
    "gptq that is v2": gptq(stored_as_v2=True),
    "gptq, asymmetric": gptq(symmetric=False),
    "gptq_v2": gptq(v2=True),
    "gptq_v2, asymmetric": gptq(symmetric=False, v2=True),
    "gptq with desc_act": gptq(desc_act=True),
    "gptq with desc_act, asymmetric": gptq(desc_act=True, symmetric=False),
    "gptq, an order each": gptq(desc_act=True, by_seed=True),
    "gptq, 8 bits": gptq(8, symmetric=False),
    "gptq, 3 bits": gptq(3),
    "gptq, 2 bits": gptq(2, symmetric=False),
    "auto-round as gptq": auto_round("auto_round:auto_gptq", gptq(symmetric=False)),
    "auto-round as gptq_v2": auto_round("auto_round", gptq(symmetric=False, v2=True)),
    "auto-round, old": auto_round("auto_round:exllamav2", gptq(stored_as_v2=True)),
    "auto-round as awq": auto_round("auto_round:auto_awq", awq()),
    "nf4": nf4(),
    "nf4, nested": nf4(nested=True),
    "bitsandbytes int8": bnb_int8(),
}
EXPERT_WRITERS: Mapping[str, Writer] = {"mxfp4 of gpt-oss": gpt_oss()}
