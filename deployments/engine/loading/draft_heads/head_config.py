"""Reads the config.json of a draft head, and refuses by name what is no EAGLE-3 head of one layer.

Such heads come in two forms. In that of SafeAILab, SpecForge and AngelSlim the config is a Llama's
with some fields more, in that of speculators it has a Llama's config within.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import PretrainedConfig

from deployments.engine.errors import UnsupportedModelError, unsupported_on_error
from deployments.engine.forward.draft_heads.eagle import EagleConfig
from deployments.engine.loading.configs.sizes import check_sizes
from deployments.engine.loading.gguf.names import is_gguf

SPECULATORS, EAGLE_3 = "speculators_model_type", "eagle3"
ANY_HEAD = re.compile(r"eagle|speculator|medusa|dflash|dspark|hydra", re.IGNORECASE)
IS_EAGLE_3 = re.compile(r"eagle-?3", re.IGNORECASE)
SPECULATORS_LAYERS = ("llama", "qwen3")  # types of the config within
DRAFT_VOCABULARY = ("draft_vocab_size", "truncated_vocab_size")
N_TAPS = 3  # unless a head says which
# Kinds of rotary embeddings whose frequencies do not go by the length of a sequence. That by line
# and column is the default one for text.
ROTARY_KINDS = {"default": "default", "mrope": "default"} | {
    kind: kind for kind in ("linear", "llama3", "yarn")
}
# Fields, also of the config within and of `eagle_config`, and the values with which a head is as
# all are. Others are refused.
USUAL: Mapping[str, Sequence[object]] = {
    "num_hidden_layers": (1,),
    "hidden_act": ("silu",),
    "partial_rotary_factor": (1,),
    "logit_scale": (1,),
    "parallel_drafting": (False,),
    "parallel_draft_step": (1,),
    "use_aux_hidden_state": (True,),
    "use_input_layernorm_in_first_layer": (True,),
    "use_last_layernorm": (True,),
    "use_mtp_layernorm": (False,),
    "eh_proj_before_attn": (False,),
    "quantization_config": ({},),
    "compression_config": ({},),
}


def head_fields(path: str) -> Mapping[str, Any] | None:
    """The config.json of a directory or hub id that is a draft head of any kind; None: it is none.

    Raises UnsupportedModelError for one that can't be read, OSError where there is nothing.
    """
    if is_gguf(path):
        return None
    with unsupported_on_error(f"the config.json of {path} can't be read"):
        fields, _ = PretrainedConfig.get_config_dict(path)
    return fields if isinstance(fields, Mapping) and _is_head(fields) else None


def _is_head(fields: Mapping[str, Any]) -> bool:
    """Some heads have a Llama's name. A model of one layer has no vocabulary of drafts."""
    if SPECULATORS in fields or any(ANY_HEAD.search(name) for name in _architectures(fields)):
        return True
    says_few = any(isinstance(fields.get(name), int) for name in DRAFT_VOCABULARY)
    return fields.get("num_hidden_layers") == 1 and says_few


def _architectures(fields: Mapping[str, Any]) -> list[str]:
    names = fields.get("architectures")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


class HeadFields:
    """The fields of a head's config, in either form."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        """Raises UnsupportedModelError for another kind of head, and for what is not supported."""
        check_sizes(fields)
        _check_kind(fields)
        self._is_speculators = SPECULATORS in fields
        within = fields.get("transformer_layer_config") if self._is_speculators else fields
        eagle = fields.get("eagle_config") or {}
        if not isinstance(within, Mapping) or not isinstance(eagle, Mapping):
            raise UnsupportedModelError(
                "the config of the draft head has no config of its layer within"
            )
        if self._is_speculators and within.get("model_type") not in SPECULATORS_LAYERS:
            raise UnsupportedModelError(
                f"the draft head's layer is of type {within.get('model_type')!r:.50}; of "
                f"{' and '.join(SPECULATORS_LAYERS)} it can be"
            )
        self._fields, self._within, self._eagle = fields, within, eagle
        for found in (fields, within, eagle):
            _check_usual(found)
        if "sliding_attention" in (within.get("layer_types") or ()):
            raise UnsupportedModelError("the draft head attends within a window: layer_types")

    def layer(self, name: str) -> Any:
        """A field of the layer's config; None: it has none."""
        return self._within.get(name)

    def size(self, name: str) -> int:
        """A field of the layer's config that it must have."""
        value = self._within.get(name)
        if not isinstance(value, int):
            raise UnsupportedModelError(f"the config of the draft head has no {name}")
        return value

    def option(self, name: str) -> bool:
        value = self._fields.get(name, self._eagle.get(name))
        if name == "norm_before_residual" and value is None:
            return self._is_speculators
        if not isinstance(value, bool | None):
            raise UnsupportedModelError(f"{name} of the draft head is {value!r:.50}: yes or no")
        return bool(value)

    @property
    def draft_vocab_size(self) -> int | None:
        """The tokens that the head can say, where the config says it."""
        for name in DRAFT_VOCABULARY:
            if isinstance(value := self._fields.get(name), int):
                return value
        return None

    @property
    def target_size(self) -> int:
        """The size of the model's hidden states."""
        value = self._fields.get("target_hidden_size") or self._within.get("target_hidden_size")
        return value if isinstance(value, int) else self.size("hidden_size")

    @property
    def tapped(self) -> tuple[int, ...] | None:
        """The model's layers whose inputs the head reads. A field of `eagle_config` counts layers
        by what they return."""
        name = "eagle_aux_hidden_state_layer_ids"
        read, returned = self._fields.get(name), self._eagle.get(name)
        ids = read or [n + 1 if type(n) is int else n for n in returned or ()]
        if not isinstance(ids, list) or not all(type(n) is int and n >= 0 for n in ids):
            raise UnsupportedModelError(f"{name} of the draft head is {ids!r:.50}: no layers")
        return tuple(ids) or None

    def rotary(self) -> dict[str, Any]:
        """Fields of a Llama's config that say its rotary embedding."""
        said = self._within.get("rope_parameters") or self._within.get("rope_scaling") or {}
        if not isinstance(said, Mapping):
            raise UnsupportedModelError(f"rope_scaling of the draft head is {said!r:.50}")
        kind = said.get("rope_type") or said.get("type") or "default"
        if kind not in ROTARY_KINDS:
            raise UnsupportedModelError(f"the draft head has a rotary embedding of type {kind!r}")
        rest = {
            name: value for name, value in said.items() if name != "type" and "mrope" not in name
        }
        theta = rest.get("rope_theta") or self._within.get("rope_theta") or 10_000.0
        sizes = ("hidden_size", "num_attention_heads")
        return {
            **{name: self.size(name) for name in sizes},
            "head_dim": self.head_dim,
            "max_position_embeddings": self._within.get("max_position_embeddings") or 2048,
            "rope_parameters": {**rest, "rope_type": ROTARY_KINDS[kind], "rope_theta": theta},
        }

    @property
    def head_dim(self) -> int:
        heads = self.size("num_attention_heads")
        return self._within.get("head_dim") or self.size("hidden_size") // heads


def _check_kind(fields: Mapping[str, Any]) -> None:
    kind = fields.get(SPECULATORS)
    if kind is not None and kind != EAGLE_3:
        raise UnsupportedModelError(
            f"the draft head is of type {kind!r:.50} of speculators; {EAGLE_3} alone is supported"
        )
    for name in _architectures(fields) if kind is None else ():
        if ANY_HEAD.search(name) and not IS_EAGLE_3.search(name):
            raise UnsupportedModelError(
                f"the draft head is a {name}; those of EAGLE-3 alone are supported"
            )


def _check_usual(fields: Mapping[str, Any]) -> None:
    for name, values in USUAL.items():
        value = fields.get(name)
        if value is not None and value not in values:
            raise UnsupportedModelError(
                f"{name} of the draft head is {value!r:.50}, which is not supported"
            )


def read_head_config(fields: Mapping[str, Any]) -> EagleConfig:
    """The config of a head whose files are not seen yet: which weights they have is not in it.

    Raises UnsupportedModelError as `HeadFields` does.
    """
    head = HeadFields(fields)
    tapped = head.tapped
    heads = head.size("num_attention_heads")
    with unsupported_on_error("the config of the draft head can't be read"):
        return EagleConfig(
            hidden_size=head.size("hidden_size"),
            intermediate_size=head.size("intermediate_size"),
            heads=heads,
            kv_heads=int(head.layer("num_key_value_heads") or heads),
            head_dim=head.head_dim,
            epsilon=float(head.layer("rms_norm_eps") or 1e-6),
            target_size=head.target_size,
            n_taps=N_TAPS if tapped is None else len(tapped),
            tapped=tapped,
            vocab_size=head.draft_vocab_size or head.size("vocab_size"),
            target_vocab_size=head.size("vocab_size"),
            rotary=head.rotary(),
            norm_before_fc=head.option("norm_before_fc"),
            fc_norm=head.option("fc_norm"),
            norm_before_residual=head.option("norm_before_residual"),
            norm_output=head.option("norm_output") or head.option("return_hidden_post_norm"),
        )
