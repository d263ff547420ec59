"""Says what a config's `quantization_config` asks for, or refuses it by name."""

from collections.abc import Callable, Iterable, Mapping

from transformers import PretrainedConfig

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.formats.table import (
    AWQ,
    COMPRESSED,
    FP8,
    GPT_OSS,
    GPTQ,
    GPTQ_V2,
    INT8,
    MODELOPT,
    NF4,
    Format,
    Options,
)

INSTEAD = "name the original, or a copy in another format"
NO_NAME = "of no name"
# Where a config has its options; the last one by the name that they had before.
PLACES = ("quantization_config", "compression_config")


def quantization_options(config: PretrainedConfig) -> Options | None:
    """The options of a config. None: the weights are not quantized."""
    for candidate in (config, config.get_text_config(decoder=True)):
        for place in PLACES:
            if found := getattr(candidate, place, None):
                options: Options = found if isinstance(found, Mapping) else found.to_dict()
                return options
    return None


def method_of(options: Options) -> str:
    """How weights are quantized, as transformers names it."""
    method = options.get("quant_method", NO_NAME)
    return str(getattr(method, "value", method))


def formats_of(options: Options) -> tuple[Format, ...]:
    """The formats that files with these options may have weights in.

    Raises UnsupportedModelError where they are not read.
    """
    method = method_of(options)
    find = METHODS.get(method)
    if find is None:
        known = ", ".join(METHODS)
        raise UnsupportedModelError(
            f"its weights are quantized ({method}): {INSTEAD}. Read are {known}"
        )
    return find(options)


def _refuse_but(name: str, value: object, read: Iterable[object]) -> None:
    """Raises UnsupportedModelError unless an option has a value that is read, or none."""
    said = str(value).lower()
    names = [str(known) for known in read]
    if value is not None and said not in names:
        raise UnsupportedModelError(
            f"its weights are quantized with {name} {said:.50}, and read is {', '.join(names)}: "
            f"{INSTEAD}"
        )


def _gptq(options: Options) -> tuple[Format, ...]:
    _refuse_but("checkpoint_format", _first(options, "checkpoint_format", "format"), GPTQ_FORMATS)
    _refuse_but("is_marlin_format", options.get("is_marlin_format"), ("false",))
    return (GPTQ,)


def _awq(options: Options) -> tuple[Format, ...]:
    version = _first(options, "version", "checkpoint_format", "format")
    _refuse_but("version", getattr(version, "value", version), ("gemm",))
    _refuse_but("bits", options.get("bits", options.get("w_bit")), (4,))
    return (AWQ,)


def _auto_round(options: Options) -> tuple[Format, ...]:
    _refuse_but("data_type", options.get("data_type"), ("int",))
    packing = str(_first(options, "packing_format", "backend") or "auto").lower()
    if options.get("sym") and packing in OLD_AUTO_ROUND:
        return (GPTQ,)
    _refuse_but("packing_format", packing, AUTO_ROUND)
    return (AUTO_ROUND[packing],)


def _compressed(options: Options) -> tuple[Format, ...]:
    sparsity, transform = options.get("sparsity_config"), options.get("transform_config")
    _refuse_but("sparsity_config", (sparsity or {}).get("format"), ("dense",))
    if transform:
        raise UnsupportedModelError(
            f"its weights are quantized with transform_config, which turns inputs: {INSTEAD}"
        )
    groups = (options.get("config_groups") or {}).values()
    names = [options.get("format"), *(group.get("format") for group in groups)]
    for name in names:
        _refuse_but("format", name, COMPRESSED_FORMATS)
    return COMPRESSED


def _modelopt(options: Options) -> tuple[Format, ...]:
    _refuse_but("quant_algo", options.get("quant_algo"), MODELOPT_ALGORITHMS)
    return (MODELOPT, *FP8)


def _fp8(options: Options) -> tuple[Format, ...]:
    _refuse_but("fmt", options.get("fmt"), ("e4m3", "float8_e4m3fn"))
    return FP8


def _first(options: Options, *names: str) -> object:
    return next((options[name] for name in names if options.get(name) is not None), None)


GPTQ_FORMATS = ("gptq", "gptq_v2")
AUTO_ROUND: Mapping[str, Format] = {
    "auto_round": GPTQ_V2,
    "auto_round:gptqmodel": GPTQ_V2,
    "auto_round:auto_gptq": GPTQ,
    "auto_round:gptq": GPTQ,
    "auto": GPTQ,
    "auto_round:auto_awq": AWQ,
    "auto_round:awq": AWQ,
}
# Older files, whose zeros may be stored in either way: a symmetric one's are told apart.
OLD_AUTO_ROUND = ("auto_round:exllamav2", "auto_round:tritonv2")
COMPRESSED_FORMATS = (
    *("dense", "naive-quantized", "int-quantized", "float-quantized", "pack-quantized"),
    *("nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision"),
)
MODELOPT_ALGORITHMS = (
    *("fp8", "fp8_pb_wo", "fp8_per_channel_per_token", "mxfp8"),
    *("nvfp4", "nvfp4_awq", "w4a16_nvfp4", "mixed_precision"),
)
METHODS: Mapping[str, Callable[[Options], tuple[Format, ...]]] = {
    "fp8": _fp8,
    "fbgemm_fp8": _fp8,
    "compressed-tensors": _compressed,
    "awq": _awq,
    "gptq": _gptq,
    "auto-round": _auto_round,
    "intel/auto-round": _auto_round,
    "mxfp4": lambda _: (GPT_OSS,),
    "modelopt": _modelopt,
    "bitsandbytes": lambda _: (NF4, INT8),
}
