"""Tiny draft heads: files in both forms, and what they compute in plain torch.

Here a token is read beside the state of the token before it, all of a sequence at once.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.loading.draft_heads.head_config import read_head_config
from deployments.engine.loading.draft_heads.head_files import LoadedEagle, made_head
from tests.models import tiny_model

Tensors = dict[str, Tensor]
HIDDEN, INTERMEDIATE, HEADS, KV_HEADS, DIM, VOCAB = 32, 48, 4, 2, 16, 128
EPSILON, THETA = 1e-5, 5_000.0
LAYER: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "num_hidden_layers": 1,
    "head_dim": DIM,
    "hidden_act": "silu",
    "rms_norm_eps": EPSILON,
    "vocab_size": VOCAB,
    "max_position_embeddings": 64,
}


def as_llama(**options: object) -> dict[str, Any]:
    """A config as SafeAILab, SpecForge and AngelSlim have it."""
    return {"architectures": ["LlamaForCausalLMEagle3"], **LAYER, "rope_theta": THETA, **options}


def as_speculators(**options: object) -> dict[str, Any]:
    within = {**LAYER, "rope_parameters": {"rope_theta": THETA, "rope_type": "default"}}
    return {
        "architectures": ["Eagle3DraftModel"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": within,
        **options,
    }


def head_tensors(options: Mapping[str, Any], *also: str, seed: int = 0) -> Tensors:
    """Random tensors of a head, by their names in speculators. `also`: tensors that not all heads
    have, `biases` for those of attention."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).mul_(float(shape[-1]) ** -0.5)

    def norm(n: int) -> Tensor:
        return torch.rand(n, generator=generator) + 0.5

    sizes = options.get("transformer_layer_config", options)
    hidden, intermediate = sizes["hidden_size"], sizes["intermediate_size"]
    heads, kv_heads = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    dim, n_tokens = sizes["head_dim"], sizes["vocab_size"]
    n_taps = len(options.get("eagle_aux_hidden_state_layer_ids") or (0, 0, 0))
    target_size = options.get("target_hidden_size") or hidden
    n = options.get("draft_vocab_size", n_tokens)
    rows = {"q": heads * dim, "k": kv_heads * dim, "v": kv_heads * dim}
    attention, layer = "layers.0.self_attn.", "layers.0."
    found = {
        "fc.weight": random(hidden, n_taps * target_size),
        "norm.weight": norm(hidden),
        "lm_head.weight": 4 * random(n, hidden),
        **{f"{attention}{name}_proj.weight": random(n, 2 * hidden) for name, n in rows.items()},
        f"{attention}o_proj.weight": random(hidden, heads * dim),
        **{
            f"{layer}mlp.{name}_proj.weight": random(intermediate, hidden)
            for name in ("gate", "up")
        },
        f"{layer}mlp.down_proj.weight": random(hidden, intermediate),
        **{
            f"{layer}{name}.weight": norm(hidden)
            for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm")
        },
    }
    if options.get("norm_before_fc"):
        found["input_norm.weight"] = norm(n_taps * target_size)
    if options.get("fc_norm"):
        found |= {f"fc_norm.{i}.weight": norm(target_size) for i in range(n_taps)}
    if "embed_tokens" in also:
        found["embed_tokens.weight"] = random(n_tokens, hidden)
    if "biases" in also:
        found |= {f"{attention}{name}_proj.bias": random(n) for name, n in rows.items()}
    if "head_norms" in also:
        found |= {f"{attention}{name}_norm.weight": norm(dim) for name in "qk"}
    if n < n_tokens:
        ids = torch.randperm(n_tokens, generator=generator)[:n].sort().values
        found["d2t"] = ids - torch.arange(n)
        found["t2d"] = torch.zeros(n_tokens, dtype=torch.bool).index_fill(0, ids, value=True)
    return found


def save_head(folder: Path, config: Mapping[str, Any], tensors: Tensors) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if "speculators_model_type" not in config:
        tensors = {name.replace("layers.0.", "midlayer."): t for name, t in tensors.items()}
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors")
    return str(folder)


def random_head(tensors: Tensors | None = None, **options: Any) -> LoadedEagle:
    """A head with its own embeddings, which is hardly ever right."""
    config = as_llama(**options)
    return made_head(read_head_config(config), tensors or head_tensors(config, "embed_tokens"))


def bigram(architecture: str = "llama") -> PreTrainedModel:
    """A model that goes by the last token alone."""
    model = tiny_model(architecture)
    for name, weight in model.named_parameters():
        if "o_proj" in name or "down_proj" in name:
            weight.data.zero_()
    return model


def knowing_head(model: PreTrainedModel, *, has_own: bool = True) -> LoadedEagle:
    """A head that says what a bigram says, with embeddings and a last matrix of its own.

    A token attends to itself alone: keys and queries are all the same, and large. A value is the
    normed embedding. States are of no weight.
    """
    hidden, embedded = model.config.hidden_size, model.get_input_embeddings().weight.detach()
    n = hidden // DIM
    config = as_llama(
        hidden_size=hidden,
        vocab_size=len(embedded),
        norm_before_residual=True,
        num_attention_heads=n,
        num_key_value_heads=n,
    )
    tensors = head_tensors(config, "embed_tokens", "biases")
    attention, layer = "layers.0.self_attn.", "layers.0."
    none = "fc", f"{layer}mlp.down_proj", f"{layer}hidden_norm"
    for name in (*none, *(f"{attention}{part}_proj" for part in "qkv")):
        tensors[f"{name}.weight"].zero_()
    for part in "qkv":
        tensors[f"{attention}{part}_proj.bias"].fill_(40.0 if part in "qk" else 0.0)
    tensors[f"{attention}v_proj.weight"][:, :hidden] = torch.eye(hidden)
    tensors[f"{attention}o_proj.weight"] = torch.eye(hidden)
    tensors[f"{layer}input_layernorm.weight"].fill_(1.0)
    tensors["norm.weight"] = model.model.norm.weight.detach().clone()
    tensors["embed_tokens.weight"] = embedded.clone()
    tensors["lm_head.weight"] = model.get_output_embeddings().weight.detach().clone()
    if not has_own:
        del tensors["embed_tokens.weight"], tensors["lm_head.weight"]
    return made_head(read_head_config(config), tensors, model.dtype)


class PlainHead:
    """A head in plain torch, for one sequence."""

    def __init__(self, tensors: Tensors, options: Mapping[str, Any], model: PreTrainedModel):
        self._tensors, self._options = tensors, options
        self._embedding = tensors.get(
            "embed_tokens.weight", model.get_input_embeddings().weight.detach()
        )
        self._head = tensors.get("lm_head.weight", model.get_output_embeddings().weight.detach())

    def states(self, hidden: Sequence[Tensor]) -> Tensor:
        """The states that the head reads, of what transformers calls hidden states: those of layers
        2, 1 and 0. [tokens, hidden]"""
        return self.join([hidden[i][0] for i in (2, 1, 0)])

    def join(self, tapped: Sequence[Tensor]) -> Tensor:
        """The states of each layer [tokens, hidden] -> [tokens, hidden]"""
        parts = [*tapped]
        if self._options.get("fc_norm"):
            parts = [self._norm(f"fc_norm.{i}", part) for i, part in enumerate(parts)]
        joined = torch.cat(parts, 1)
        if self._options.get("norm_before_fc"):
            joined = self._norm("input_norm", joined)
        return joined @ self._tensors["fc.weight"].T

    def __call__(self, token_ids: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [tokens] and states [tokens, hidden]. Returns logits behind each [tokens, vocab],
        and the head's own states."""
        layer = "layers.0."
        normed = self._norm(f"{layer}hidden_norm", states)
        embedded = self._norm(f"{layer}input_layernorm", self._embedding[token_ids])
        residual = normed if self._options.get("norm_before_residual") else states
        x = residual + self._attend(torch.cat([embedded, normed], 1))
        y = self._norm(f"{layer}post_attention_layernorm", x)
        gate, up = (self._linear(f"{layer}mlp.{name}_proj", y) for name in ("gate", "up"))
        x = x + self._linear(f"{layer}mlp.down_proj", F.silu(gate) * up)
        logits = self._norm("norm", x) @ self._head.T
        if (offsets := self._tensors.get("d2t")) is not None:
            ids = torch.arange(len(offsets)) + offsets
            logits = torch.full((len(x), VOCAB), float("-inf")).index_copy(1, ids, logits)
        return logits, self._norm("norm", x) if self._options.get("norm_output") else x

    def _attend(self, x: Tensor) -> Tensor:
        name = "layers.0.self_attn."
        q, k, v = (
            self._linear(f"{name}{part}_proj", x).view(len(x), -1, DIM).transpose(0, 1)
            for part in "qkv"
        )
        if f"{name}q_norm.weight" in self._tensors:
            q, k = self._norm(f"{name}q_norm", q), self._norm(f"{name}k_norm", k)
        heads = _rotated(q)[None], _rotated(k)[None], v[None]
        out = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        return self._linear(f"{name}o_proj", out[0].transpose(0, 1).flatten(1))

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self._tensors[f"{name}.weight"], self._tensors.get(f"{name}.bias"))

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return F.rms_norm(x, x.shape[-1:], self._tensors[f"{name}.weight"], EPSILON)


def _rotated(x: Tensor) -> Tensor:
    """[heads, tokens, dim]"""
    frequencies = THETA ** (-torch.arange(0, DIM, 2) / DIM)
    angles = torch.arange(x.shape[1])[:, None] * frequencies
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin
