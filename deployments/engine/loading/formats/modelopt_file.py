"""Reads hf_quant_config.json, where older files of modelopt say how weights are quantized."""

from collections.abc import Mapping

from transformers import PretrainedConfig

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.formats.methods import quantization_options
from deployments.engine.loading.sentence_files import read_json

NAME = "hf_quant_config.json"
SECTION, ALGORITHM = "quantization", "quant_algo"


def add_modelopt_options(path: str, config: PretrainedConfig) -> None:
    """Gives a config that says nothing of quantization what the file beside it says.

    Raises UnsupportedModelError for a file that can't be read.
    """
    found = read_json(path, NAME) if quantization_options(config) is None else None
    if found is None:
        return
    options = found.get(SECTION) if isinstance(found, Mapping) else None
    if not isinstance(options, Mapping):
        raise UnsupportedModelError(f"{NAME} of {path} has no object {SECTION}")
    if options.get(ALGORITHM) is not None:  # else keys and values alone are quantized
        config.quantization_config = {"quant_method": "modelopt", **options}
