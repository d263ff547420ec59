"""The table of families with MTP heads: how their files name the tensors of one.

transformers drops these tensors as it loads a model.
"""

import copy
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from transformers import (
    DeepseekV3Config,
    Ernie4_5_MoeConfig,
    Glm4MoeConfig,
    Glm4MoeLiteConfig,
    NemotronHConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
)

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.loading.weights_check import COMPUTED, listed

# Our names: of a join, and of the model of one layer behind it.
EMBEDDING_NORM, STATE_NORM, PROJECTION = "embedding_norm", "state_norm", "projection"
LAYERS, LAYER, LAST_NORM = "model.layers.", "model.layers.0.", "model.norm"
EXPERTS = f"{LAYER}mlp.experts."
N_STAND_INS = 16  # tokens of a model of one layer, which is never asked for any


class MtpNames(NamedTuple):
    """The names of a head's tensors in a model's files.

    beginning: of them all; what a number in it is, is that of the first layer behind the model's.
    modules: their names behind that, by ours. A head without a last norm has that of its model.
    layer: the beginning of the names of its layer, and of ours.
    shared: modules that are copies of the model's.
    is_state_first: what the projection reads begins with the state.
    last_norm, embedding: names of modules of its model.
    """

    beginning: str
    modules: Mapping[str, str]
    layer: tuple[str, str]
    shared: tuple[str, ...] = ()
    is_state_first: bool = False
    last_norm: str = LAST_NORM
    embedding: str = "model.embed_tokens"

    def of_heads(self, names: Iterable[str], n_layers: int) -> list[str]:
        """Returns those of some names that belong to heads of a model of so many layers."""
        stem, number, _ = self.beginning.partition("{}")
        layer = re.compile(re.escape(stem) + (r"(\d+)\." if number else "()"))
        found = ((name, layer.match(name)) for name in names)
        return [name for name, match in found if match and int(match[1] or n_layers) >= n_layers]

    def renamed(self, name: str, n_layers: int) -> str | None:
        """Our name of a head's tensor. None: it is of no use, or not known."""
        beginning = self.beginning.format(n_layers)
        rest = name.removeprefix(beginning)
        for ours, theirs in self.modules.items():
            if rest.startswith(f"{theirs}."):
                return ours + rest.removeprefix(theirs)
        theirs, ours = self.layer
        return ours + rest.removeprefix(theirs) if self._is_of_layer(name, rest) else None

    def unknown(self, names: Iterable[str], n_layers: int) -> list[str]:
        """Returns those of a head's names that are neither used nor known to be of no use."""
        beginning = self.beginning.format(n_layers)
        shared = tuple(f"{beginning}{name}." for name in self.shared)
        rest = (name for name in names if self.renamed(name, n_layers) is None)
        return [name for name in rest if not (name.startswith(shared) or COMPUTED.search(name))]

    def _is_of_layer(self, name: str, rest: str) -> bool:
        is_shared = rest.startswith(tuple(f"{shared}." for shared in self.shared))
        is_ours = rest != name and rest.startswith(self.layer[0]) and not is_shared
        return is_ours and not COMPUTED.search(name)


DEEPSEEK = MtpNames(
    "model.layers.{}.",
    {
        EMBEDDING_NORM: "enorm",
        STATE_NORM: "hnorm",
        PROJECTION: "eh_proj",
        LAST_NORM: "shared_head.norm",
    },
    layer=("", LAYER),
    shared=("embed_tokens", "shared_head.head"),
)
QWEN = MtpNames(
    "mtp.",
    {
        EMBEDDING_NORM: "pre_fc_norm_embedding",
        STATE_NORM: "pre_fc_norm_hidden",
        PROJECTION: "fc",
        LAST_NORM: "norm",
    },
    layer=("layers.0.", LAYER),
)
# Files of Qwen 2's form.
MIMO = MtpNames(
    "model.mtp_layers.",
    {
        EMBEDDING_NORM: "0.token_layernorm",
        STATE_NORM: "0.hidden_layernorm",
        PROJECTION: "0.input_proj",
        LAST_NORM: "0.final_layernorm",
    },
    layer=("0.", LAYER),
    is_state_first=True,
)
ERNIE = MtpNames(
    "model.mtp_",
    {
        EMBEDDING_NORM: "emb_norm.0",
        STATE_NORM: "hidden_norm.0",
        PROJECTION: "linear_proj.0",
    },
    layer=("block.0.", LAYER),
)
# Two layers, which are one head: attention, and experts.
NEMOTRON = MtpNames(
    "mtp.",
    {
        EMBEDDING_NORM: "layers.0.enorm",
        STATE_NORM: "layers.0.hnorm",
        PROJECTION: "layers.0.eh_proj",
        "model.norm_f": "layers.1.final_layernorm",
    },
    layer=("layers.", LAYERS),
    last_norm="model.norm_f",
    embedding="model.embeddings",
)
MTP_FAMILIES: Mapping[type[PretrainedConfig], MtpNames] = {
    DeepseekV3Config: DEEPSEEK,
    Glm4MoeConfig: DEEPSEEK,
    Glm4MoeLiteConfig: DEEPSEEK,
    Qwen3NextConfig: QWEN,
    Qwen3_5TextConfig: QWEN,
    Qwen3_5MoeTextConfig: QWEN,
    Qwen2Config: MIMO,
    Ernie4_5_MoeConfig: ERNIE,
    NemotronHConfig: NEMOTRON,
}
INSTEAD = (
    "leave spec-type out, or name a draft model or an EAGLE-3 head by model-draft; draft-tokens "
    "alone drafts by prompt lookup"
)


def mtp_names(config: PretrainedConfig) -> MtpNames:
    """How a head of a model with such a config is named. Raises UnsupportedModelError for a family
    whose heads are not known."""
    text = config.get_text_config(decoder=True)
    if (names := MTP_FAMILIES.get(type(text))) is None:
        known = sorted(kind.model_type for kind in MTP_FAMILIES)
        raise UnsupportedModelError(
            f"spec-type: no MTP heads of {text.model_type} are known, but those of "
            f"{', '.join(known)} (MiMo is of type qwen2): {INSTEAD}"
        )
    return names


def has_mtp_head(config: PretrainedConfig, names: Iterable[str]) -> bool:
    """Whether a head that can draft is among the tensors of a model's files."""
    family = MTP_FAMILIES.get(type(config))
    return family is not None and bool(family.of_heads(names, config.num_hidden_layers))


def head_names(config: PretrainedConfig, names: Iterable[str]) -> dict[str, str]:
    """Our names of the tensors of a head, by their names in a model's files.

    Raises UnsupportedModelError where there is no head, and for tensors that are not known.
    """
    family, n_layers = mtp_names(config), config.num_hidden_layers
    found = family.of_heads(names, n_layers)
    if not found:
        beginning = family.beginning.format(n_layers)
        raise UnsupportedModelError(
            f"spec-type: the model's files have no MTP head ({beginning}*): name the original "
            f"model, if this is a copy without it; else {INSTEAD}"
        )
    if unknown := family.unknown(found, n_layers):
        raise UnsupportedModelError(
            f"the MTP head has weights that are not known: {listed(unknown)}"
        )
    renamed = ((name, family.renamed(name, n_layers)) for name in found)
    return {name: ours for name, ours in renamed if ours is not None}


def one_layer(config: PretrainedConfig, *, has_experts: bool) -> PretrainedConfig:
    """The config of the model of one layer that a head is, of that of its model. It attends to
    all tokens, and its feed-forward is one of experts or not."""
    one = copy.deepcopy(config)
    changes = {
        "num_hidden_layers": 1,
        "vocab_size": N_STAND_INS,
        "tie_word_embeddings": False,
        **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id")),
        "layer_types": getattr(one, "mtp_layers_block_type", None) or ["full_attention"],
        "mlp_layer_types": ["sparse" if has_experts else "dense"],
        "first_k_dense_replace": 0 if has_experts else 1,
        "mlp_only_layers": [] if has_experts else [0],
        "decoder_sparse_step": 1,
        "moe_layer_start_index": 0 if has_experts else 1,
        "moe_layer_end_index": 0,
        "moe_layer_interval": 1,
    }
    one.update({name: value for name, value in changes.items() if hasattr(one, name)})
    return one
