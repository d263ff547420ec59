"""Reads the config of a model, whose own code is never run, or refuses it by name."""

from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.loading.configs.sizes import check_sizes


def read_config(path: str) -> PretrainedConfig:
    """The config of a model. `path` is a directory or a hub id.

    Raises UnsupportedModelError for a type of model that transformers does not know, OSError where
    there is no model.
    """
    config_dict, _ = PretrainedConfig.get_config_dict(path)
    check_sizes(config_dict)
    model_type = config_dict.get("model_type")
    if model_type is not None and model_type not in CONFIG_MAPPING:
        reason = (
            "comes with code of its own, which is never run"
            if "auto_map" in config_dict
            else "is no type of model that the installed transformers knows"
        )
        raise UnsupportedModelError(f"{model_type} {reason}")
    with unsupported_on_error(f"{model_type or path} can't be loaded"):
        config: PretrainedConfig = AutoConfig.from_pretrained(path, trust_remote_code=False)
    return config
