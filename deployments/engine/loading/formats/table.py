"""Names the storage formats of quantized weights that are read: a format is a file and a line here.

A method is what a config's `quant_method` says. The tensors of each weight say which format it has:
modules that a config excludes have plain weights, so that no pattern of names is matched.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from deployments.engine.loading.formats import (
    awq,
    bitsandbytes,
    fp4,
    gptq,
    packed_integers,
    scaled,
)
from deployments.engine.loading.formats.parts import StoredParts, WeightParts

Options = Mapping[str, Any]


class Format(NamedTuple):
    """A storage format.

    mark: the end of the name of a tensor that only weights of this format have.
    codes: the same of the tensor of codes.
    ends: the same of all its tensors.
    read: their matrix.
    target: the end of the parameter's name, behind what all these names begin with.
    """

    mark: str
    codes: str
    ends: tuple[str, ...]
    read: Callable[[WeightParts, Options], StoredParts]
    target: str = ""


def _packed(parts: WeightParts, options: Options) -> StoredParts:
    """Words are of whole numbers, bytes of two numbers of 4 bits."""
    is_bytes = parts["_packed"].dtype == torch.uint8
    return (fp4.read_mxfp4 if is_bytes else packed_integers.read_packed_integers)(parts, options)


GPTQ = Format(".qweight", ".qweight", gptq.ENDS, gptq.read_gptq, ".weight")
GPTQ_V2 = GPTQ._replace(read=gptq.read_gptq_v2)
AWQ = Format(".qweight", ".qweight", awq.ENDS, awq.read_awq, ".weight")
GPT_OSS = Format("_blocks", "_blocks", ("_blocks", "_scales"), fp4.read_gpt_oss)
COMPRESSED = (
    Format("_global_scale", "_packed", fp4.ENDS, fp4.read_nvfp4),
    Format("_packed", "_packed", packed_integers.ENDS, _packed),
    Format("_scale", "", ("", "_scale", "_zero_point"), scaled.read_compressed),
)
MODELOPT = Format("_scale_2", "", ("", "_scale", "_scale_2"), fp4.read_modelopt)
NF4 = Format(".absmax", "", bitsandbytes.ENDS, bitsandbytes.read_table)
INT8 = Format(".SCB", ".weight", bitsandbytes.INT8_ENDS, bitsandbytes.read_int8, ".weight")


def _fp8(codes: str, scale: str, target: str = "") -> Format:
    return Format(scale, codes, (codes, scale), scaled.fp8_reader(codes, scale), target)


# By the names of the scales: those of most files, of older ones, and of some of Mistral's.
FP8 = (
    _fp8("", "_scale_inv"),
    _fp8("", "_scale"),
    _fp8(".weight", ".scale", ".weight"),
    _fp8(".weight", ".qscale_weight", ".weight"),
)
