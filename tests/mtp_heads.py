"""Tiny MTP heads of each family: as their files name them, and what they compute in transformers.

Here a token is read beside the state of the token before it, all of a sequence at once.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor
from transformers import (
    Ernie4_5_MoeConfig,
    Glm4MoeConfig,
    Glm4MoeLiteConfig,
    NemotronHConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
)

from deployments.engine.forward.fused.families import FAMILIES
from deployments.engine.loading.draft_heads.mtp_families import (
    EMBEDDING_NORM,
    PROJECTION,
    STATE_NORM,
    mtp_names,
    one_layer,
)
from deployments.engine.loading.draft_heads.mtp_files import LoadedMtp, made_mtp
from deployments.engine.loading.loaded_model import LoadedModel
from tests.checkpoints import byte_tokenizer
from tests.models import CONFIGS, SIZES, from_config

Tensors = dict[str, Tensor]
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
OF_ALL_HEADS = {**SIZES, "num_key_value_heads": 4}  # keys are compressed
LATENTS = {
    "kv_lora_rank": 16,
    "q_lora_rank": 16,
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 8),
}
DELTA_NET = {
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 8),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2),
    "num_hidden_layers": 4,
}
CONFIGS_WITH_HEADS: dict[str, Callable[[], PretrainedConfig]] = {
    "qwen3_next": CONFIGS["qwen3_next"],
    "qwen3_5": lambda: Qwen3_5TextConfig(**{**SIZES, **DELTA_NET}),
    "qwen3_5_moe": lambda: Qwen3_5MoeTextConfig(
        **{**SIZES, **DELTA_NET, **EXPERTS}, num_experts=4, shared_expert_intermediate_size=32
    ),
    "glm4_moe": lambda: Glm4MoeConfig(
        **SIZES, **EXPERTS, n_routed_experts=4, n_group=1, topk_group=1, use_qk_norm=True
    ),
    "glm4_moe_lite": lambda: Glm4MoeLiteConfig(
        **OF_ALL_HEADS, **EXPERTS, **LATENTS, n_routed_experts=4, n_group=1, topk_group=1
    ),
    "deepseek_v3": CONFIGS["deepseek_v3"],
    "mimo": lambda: Qwen2Config(**SIZES),
    "ernie4_5_moe": lambda: Ernie4_5_MoeConfig(
        **SIZES, moe_num_experts=4, moe_k=2, moe_intermediate_size=32, tie_word_embeddings=False
    ),
    "nemotron_h": lambda: NemotronHConfig(
        **{name: size for name, size in SIZES.items() if name != "num_hidden_layers"},
        **EXPERTS,
        layer_types=["linear_attention", "moe", "full_attention"],
        n_routed_experts=4,
        moe_shared_expert_intermediate_size=32,
        ssm_state_size=16,
        mamba_num_heads=8,
        mamba_head_dim=8,
        n_groups=1,
        chunk_size=8,
    ),
}
DENSE = ("qwen3_5", "mimo", "ernie4_5_moe")


def model_with_head(family: str, *, has_states: bool = True) -> PreTrainedModel:
    """`has_states`: where others of its family have some."""
    config = CONFIGS_WITH_HEADS[family]()
    if not has_states and hasattr(config, "layer_types"):
        config.layer_types = ["full_attention"] * config.num_hidden_layers
    return from_config(config)


def mtp_bigram(family: str) -> PreTrainedModel:
    """A model that nearly goes by the last token alone."""
    model = model_with_head(family)
    _silence(dict(model.named_parameters()))
    return model


def _silence(tensors: Mapping[str, Tensor]) -> None:
    """Has layers add next to nothing: what keeps a state is tried by what it adds."""
    for name, weight in tensors.items():
        if re.search("o_proj|out_proj|down_proj", name):
            weight.data.mul_(1e-5)


def layer_of(model: PreTrainedModel, family: str, seed: int = 7) -> PreTrainedModel:
    """A random model of one layer of a head."""
    return from_config(one_layer(model.config, has_experts=family not in DENSE), seed)


def mtp_tensors(model: PreTrainedModel, family: str, seed: int = 7) -> Tensors:
    """Random tensors of a head of a model, by our names."""
    generator = torch.Generator().manual_seed(seed)
    size = model.config.hidden_size
    layer = layer_of(model, family, seed).state_dict()
    names = mtp_names(model.config)
    own = {name: weight for name, weight in layer.items() if name.startswith("model.layers.")}
    norms = [
        name for name in (EMBEDDING_NORM, STATE_NORM, names.last_norm) if name in names.modules
    ]
    found = {f"{name}.weight": torch.rand(size, generator=generator) + 0.5 for name in norms}
    projection = torch.randn(size, 2 * size, generator=generator) * size**-0.5
    return own | found | {f"{PROJECTION}.weight": projection}


def random_mtp(model: PreTrainedModel, family: str) -> LoadedMtp:
    return made_mtp(LoadedModel(model), mtp_tensors(model, family))


def knowing_mtp(model: PreTrainedModel, family: str) -> LoadedMtp:
    """A head that says what a bigram says: it hands on the embedding."""
    tensors, size = mtp_tensors(model, family), model.config.hidden_size
    _silence(tensors)
    plus = norm_plus(model)
    tensors[f"{EMBEDDING_NORM}.weight"] = torch.full((size,), 1 - plus)
    last_norm = mtp_names(model.config).last_norm
    tensors[f"{last_norm}.weight"] = model.get_submodule(last_norm).weight.detach().clone()
    parts = [torch.eye(size), torch.zeros(size, size)]
    is_last = mtp_names(model.config).is_state_first
    tensors[f"{PROJECTION}.weight"] = torch.cat(parts[:: -1 if is_last else 1], 1)
    return made_mtp(LoadedModel(model), tensors)


def norm_plus(model: PreTrainedModel) -> float:
    family = FAMILIES.get(type(model))
    return 0.0 if family is None else family.norm_plus


def in_files(model: PreTrainedModel, tensors: Tensors) -> Tensors:
    """The tensors by the names that files have, each expert's matrices apart."""
    names, n_layers = mtp_names(model.config), model.config.num_hidden_layers
    beginning, found = names.beginning.format(n_layers), Tensors()
    for name, tensor in tensors.items():
        module, _, kind = name.rpartition(".")
        if module in names.modules:
            found[f"{beginning}{names.modules[module]}.{kind}"] = tensor
            continue
        theirs, ours = names.layer
        rest = f"{beginning}{theirs}{name.removeprefix(ours)}"
        if kind == "gate_up_proj":
            for n, expert in enumerate(tensor):
                for part, matrix in zip(("gate_proj", "up_proj"), expert.chunk(2), strict=True):
                    found[rest.replace("gate_up_proj", f"{n}.{part}.weight")] = matrix
        elif kind in ("up_proj", "down_proj"):
            for n, matrix in enumerate(tensor):
                found[rest.replace(kind, f"{n}.{kind}.weight")] = matrix
        else:
            found[rest] = tensor
    copies = {
        "embed_tokens": model.get_input_embeddings(),
        "shared_head.head": model.get_output_embeddings(),
    }
    for name in names.shared:
        found[f"{beginning}{name}.weight"] = copies[name].weight.detach()
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def save_mimo(folder: Path) -> str:
    """A whole checkpoint with a head in it."""
    tokenizer = byte_tokenizer()
    model = from_config(Qwen2Config(**{**SIZES, "vocab_size": len(tokenizer)}))
    tokenizer.save_pretrained(folder)
    as_mimo = {"model_type": "mimo", "architectures": ["MiMoForCausalLM"]}
    (folder / "config.json").write_text(json.dumps({**model.config.to_dict(), **as_mimo}))
    tensors = {**model.state_dict(), **in_files(model, mtp_tensors(model, "mimo"))}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return str(folder)


class PlainMtp:
    """A head whose layer transformers computes, for one sequence."""

    def __init__(self, tensors: Tensors, model: PreTrainedModel, family: str) -> None:
        self._tensors, self._model = tensors, model
        self._layer = layer_of(model, family)
        last_norm = f"{mtp_names(model.config).last_norm}.weight"
        of_layer = {last_norm: model.get_parameter(last_norm).detach(), **tensors}
        self._layer.load_state_dict(of_layer, strict=False)
        self._is_state_first = mtp_names(model.config).is_state_first

    def states(self, hidden: Sequence[Tensor]) -> Tensor:
        """The states that the head reads, of what transformers calls hidden states. [tokens,
        hidden]"""
        return hidden[-1][0]

    def __call__(self, token_ids: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [tokens] and states [tokens, hidden]. Returns logits behind each [tokens, vocab],
        and the head's own states."""
        embedded = self._model.get_input_embeddings()(token_ids)
        parts = [self._norm(EMBEDDING_NORM, embedded), self._norm(STATE_NORM, states)]
        joined = torch.cat(parts[:: -1 if self._is_state_first else 1], 1)
        joined = joined @ self._tensors[f"{PROJECTION}.weight"].T
        behind = self._layer.model(inputs_embeds=joined[None], use_cache=False)
        own: Tensor = behind.last_hidden_state[0]
        return self._model.get_output_embeddings()(own), own

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight = self._tensors[f"{name}.weight"] + norm_plus(self._model)
        config = self._model.config
        epsilon = getattr(config, "rms_norm_eps", None) or config.layer_norm_epsilon
        return F.rms_norm(x, x.shape[-1:], weight, epsilon)
