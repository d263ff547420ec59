"""Reads the config of a model, whose own code is never run, or refuses it by name."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightTransform

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.loading.configs import internlm2
from deployments.engine.loading.configs.sizes import all_fields, check_sizes
from deployments.engine.loading.formats.modelopt_file import add_modelopt_options


class KnownAs(NamedTuple):
    """The type of models by which transformers has another one: the same layers, and fields and
    weights of the same names unless it says others."""

    architecture: str  # that the config has to name
    model_type: str
    fields: Mapping[str, str] = {}  # of its config, by its names: those of transformers' config
    weights: Sequence[WeightTransform] = ()  # from the names and forms in its files


KNOWN_AS: Mapping[str, KnownAs] = {
    "internlm2": KnownAs(
        "InternLM2ForCausalLM", "llama", fields=internlm2.FIELDS, weights=internlm2.WEIGHTS
    ),
    "kimi_k2": KnownAs("DeepseekV3ForCausalLM", "deepseek_v3"),
    "mimo": KnownAs("MiMoForCausalLM", "qwen2"),  # and draft layers, which stay out
}


DTYPES = ("dtype", "torch_dtype")  # of no use: the settings say it, or the device
# Of no use either: it is the engine's.
ATTENTION = ("attn_implementation", "_attn_implementation")


def read_config(path: str) -> PretrainedConfig:
    """The config of a model. `path` is a directory or a hub id.

    Raises UnsupportedModelError for a type of model that transformers does not know and for fields
    of a wrong form, OSError where there is no model.
    """
    with unsupported_on_error(f"the config.json of {path} can't be read"):
        fields, _ = PretrainedConfig.get_config_dict(path)
    _check_form(fields)
    check_sizes(fields)
    model_type, known = fields.get("model_type"), _known(fields)
    if known is not None and known.model_type not in CONFIG_MAPPING:
        raise UnsupportedModelError(f"{model_type} {_why_unknown(fields)}")
    with unsupported_on_error(f"{model_type or path} can't be loaded"):
        config: PretrainedConfig
        if known is not None and (known.model_type != model_type or _has_unusable(fields)):
            config = _config(fields, known)
            config.name_or_path = path
        else:
            config = AutoConfig.from_pretrained(path, trust_remote_code=False)
        if not isinstance(config.get_text_config(decoder=True), PretrainedConfig):
            raise UnsupportedModelError(
                f"its config has a config within, which models of type {model_type} do not have"
            )
    add_modelopt_options(path, config)
    return config


def _check_form(fields: object) -> None:
    """Raises UnsupportedModelError for a config that is no object, or whose type of model or
    architectures are no names.
    """
    if not isinstance(fields, Mapping):
        raise UnsupportedModelError("its config.json is no object")
    model_type, classes = fields.get("model_type"), fields.get("architectures") or []
    if not isinstance(model_type, str | None):
        raise UnsupportedModelError(f"model_type of its config is {model_type!r:.50}, and no name")
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes):
        raise UnsupportedModelError(
            f"architectures of its config is {classes!r:.50}, and no list of names"
        )


def _config(fields: Mapping[str, Any], known: KnownAs) -> PretrainedConfig:
    renamed = {known.fields.get(name, name): value for name, value in _usable(fields).items()}
    config: PretrainedConfig
    config = CONFIG_MAPPING[known.model_type].from_dict({**renamed, "model_type": known.model_type})
    if known.weights:
        # transformers finds conversions by the type. Files of the other type need none.
        config.model_type = own = fields["model_type"]
        register_checkpoint_conversion_mapping(own, [*known.weights], overwrite=True)
    return config


def _usable(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields without those that are of no use, also in configs within."""
    return {
        name: _usable(value) if isinstance(value, Mapping) else value
        for name, value in fields.items()
        if name not in (*DTYPES, *ATTENTION)
    }


def _has_unusable(fields: Mapping[str, Any]) -> bool:
    return any(
        name in ATTENTION or (name in DTYPES and not _is_dtype(value))
        for name, value in all_fields(fields)
    )


def _is_dtype(value: object) -> bool:
    """Whether it is a type of numbers as transformers reads it, or none."""
    return value is None or (
        isinstance(value, str) and isinstance(getattr(torch, value, None), torch.dtype)
    )


def _known(fields: Mapping[str, Any]) -> KnownAs | None:
    """The type by which transformers has it, or its own. None: it has none."""
    model_type: str | None = fields.get("model_type")
    known = KNOWN_AS.get(model_type or "")
    if known is not None and known.architecture in (fields.get("architectures") or ()):
        return known
    return None if model_type is None else KnownAs("", model_type)


def _why_unknown(fields: Mapping[str, Any]) -> str:
    if "auto_map" in fields:
        return (
            "comes with code of its own, which is never run: "
            "name a copy of it in a form that transformers has"
        )
    return "is no type of model that the installed transformers knows"
