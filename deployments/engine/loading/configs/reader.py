"""Reads the config of a model, whose own code is never run, or refuses it by name."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.loading.configs.sizes import check_sizes


class KnownAs(NamedTuple):
    """The type of models by which transformers has another one: the same layers, weights of the
    same names, fields of the same meaning."""

    architecture: str  # that the config has to name
    model_type: str


KNOWN_AS: Mapping[str, KnownAs] = {
    "kimi_k2": KnownAs("DeepseekV3ForCausalLM", "deepseek_v3"),
    "mimo": KnownAs("MiMoForCausalLM", "qwen2"),  # and draft layers, which stay out
}


DTYPES = ("dtype", "torch_dtype")  # of no use: the settings say it, or the device


def read_config(path: str) -> PretrainedConfig:
    """The config of a model. `path` is a directory or a hub id.

    Raises UnsupportedModelError for a type of model that transformers does not know, OSError where
    there is no model.
    """
    fields, _ = PretrainedConfig.get_config_dict(path)
    check_sizes(fields)
    model_type = fields.get("model_type")
    known = _known(fields)
    if model_type is not None and known not in CONFIG_MAPPING:
        raise UnsupportedModelError(f"{model_type} {_why_unknown(fields)}")
    with unsupported_on_error(f"{model_type or path} can't be loaded"):
        config: PretrainedConfig
        if known is not None and (known != model_type or _has_no_dtype(fields)):
            fields = {name: one for name, one in fields.items() if name not in DTYPES}
            config = CONFIG_MAPPING[known].from_dict({**fields, "model_type": known})
            config.name_or_path = path
        else:
            config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    return config


def _has_no_dtype(fields: Mapping[str, Any]) -> bool:
    return any(fields.get(name) == "auto" for name in DTYPES)


def _known(fields: Mapping[str, Any]) -> str | None:
    """The type by which transformers has it, or its own."""
    model_type: str | None = fields.get("model_type")
    known = KNOWN_AS.get(model_type or "")
    is_known = known is not None and known.architecture in (fields.get("architectures") or ())
    return known.model_type if known is not None and is_known else model_type


def _why_unknown(fields: Mapping[str, Any]) -> str:
    if "auto_map" in fields:
        return (
            "comes with code of its own, which is never run: "
            "name a copy of it in a form that transformers has"
        )
    return "is no type of model that the installed transformers knows"
