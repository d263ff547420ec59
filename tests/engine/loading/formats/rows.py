"""The rows of the guide's table of storage formats, and the weights that tests have of each."""

from collections.abc import Mapping

from tests.engine.loading.formats.writers import EXPERT_WRITERS, WRITERS, Writer

ALL_WRITERS: Mapping[str, Writer] = {**WRITERS, **EXPERT_WRITERS}
# By the row's name. The first of its weights are those of a model that is served.
ROWS: Mapping[str, tuple[str, ...]] = {
    "`fp8`, one scale": ("fp8, one scale", "fp8 with names of Mistral's"),
    "`fp8` in blocks": (
        *("fp8 in blocks, e8m0", "fp8 in blocks", "fp8 in blocks, bf16"),
        "fp8 with older names",
    ),
    "`fbgemm_fp8`": ("fp8 by output",),
    "`compressed-tensors`: `float-quantized`": (*("float-quantized in blocks", "float-quantized"),),
    "`compressed-tensors`: `int-quantized`": ("int-quantized, asymmetric", "int-quantized"),
    "`compressed-tensors`: `pack-quantized`": (
        *("w4a16, asymmetric", "w4a16", "w4a16 by output", "w3a16", "w2a16", "w8a16"),
        "w8a16 by output, asymmetric",
    ),
    "`compressed-tensors`: `pack-quantized` with `actorder`": ("w4a16 with actorder",),
    "`compressed-tensors`: `mxfp8-quantized`": ("mxfp8",),
    "`compressed-tensors`: `mxfp4-pack-quantized`": ("mxfp4-pack-quantized",),
    "`compressed-tensors`: `nvfp4-pack-quantized`": ("nvfp4-pack-quantized",),
    "`awq`": ("awq", "awq, other groups"),
    "`gptq`, 4 bits": (
        *("gptq, asymmetric", "gptq", "gptq that is v2", "gptq_v2", "gptq_v2, asymmetric"),
    ),
    "`gptq`, 2, 3 and 8 bits": ("gptq, 3 bits", "gptq, 2 bits", "gptq, 8 bits"),
    "`gptq` with `desc_act`": (
        *("gptq, an order each", "gptq with desc_act", "gptq with desc_act, asymmetric"),
    ),
    "`auto-round`": (
        *("auto-round as gptq_v2", "auto-round as gptq", "auto-round, old", "auto-round as awq"),
    ),
    "`mxfp4`": ("mxfp4 of gpt-oss",),
    "`modelopt`: FP8": ("fp8 of modelopt",),
    "`modelopt`: NVFP4": ("nvfp4 of modelopt",),
    "`bitsandbytes`, 4 bits": ("nf4, nested", "nf4"),
    "`bitsandbytes`, 8 bits": ("bitsandbytes int8",),
}
OF_EXPERTS = ("`mxfp4`",)  # alone
