"""From ids to logits: a Hugging Face model as it is, or its fused form where there is one.

The fused form has the same weights, multiplied together in fewer and larger operations.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    LlamaForCausalLM,
    MistralForCausalLM,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from deployments.engine.attention.cpu import StepAttention
from deployments.engine.attention.gpu import PagedStep
from deployments.engine.forward.cpu_recording import RecordedLayers
from deployments.engine.forward.linear import gated, is_packable, pack_linears, plus
from deployments.engine.kernels.cpu import layer_ops
from deployments.engine.kernels.cpu.features import suit
from deployments.engine.kernels.rotary import Turn, rotary_turn

# token_ids [tokens], positions [tokens], kept [kept], step -> logits [kept, vocab]
Decoder = Callable[[Tensor, Tensor, Tensor, StepAttention], Tensor]
Module = Any  # a torch module of which attributes are read that its type does not tell

# Kinds of models, and where their attention layers have their sliding window. Not subclasses: they
# may compute something else under the same names.
WINDOWS: dict[type[PreTrainedModel], Callable[[Module], int | None]] = {
    LlamaForCausalLM: lambda attention: None,
    MistralForCausalLM: lambda attention: attention.config.sliding_window,
    Qwen2ForCausalLM: lambda attention: attention.sliding_window,
    Qwen3ForCausalLM: lambda attention: attention.sliding_window,
}


def fuse(model: PreTrainedModel) -> None:
    """Joins the matrices that read the same input, in place, and fits all to the processor.

    A model of a fusable kind can't be called any more afterwards; its `decoder` can. One that was
    fused before stays as it is.
    """
    join(model, model.device)
    pack_linears(model)


def join(model: PreTrainedModel, device: torch.device | str) -> None:
    """The first half of `fuse`, which has to come before the matrices are quantized, and may come
    before they are on the device that computes."""
    if type(model) in WINDOWS and _is_plain(model) and not _is_fused(model):
        for layer in model.model.layers:
            _join(layer.self_attn, "qkv_proj", ("q_proj", "k_proj", "v_proj"))
            on_cpu = torch.device(device).type == "cpu"
            if not on_cpu or not is_packable(layer.mlp.gate_proj):
                # Where it is packed what follows each is computed with it.
                _join(layer.mlp, "gate_up_proj", ("gate_proj", "up_proj"))


def is_fusable(config: PretrainedConfig) -> bool:
    """Whether models of this kind have a fused form, if they are as most of them."""
    return type(config) in {kind.config_class for kind in WINDOWS}


def decoder(model: PreTrainedModel) -> Decoder:
    return FusedDecoder(model) if _is_fused(model) else PlainDecoder(model)


class PlainDecoder:
    """The model as transformers runs it, with our attention."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    def __call__(
        self, token_ids: Tensor, positions: Tensor, kept: Tensor, step: StepAttention
    ) -> Tensor:
        logits: Tensor = self._model(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=kept,
            step=step,
        ).logits[0]
        return logits


class FusedDecoder:
    """A stack of layers, each attention and a gated feed-forward, both behind an RMSNorm."""

    def __init__(self, model: PreTrainedModel) -> None:
        stack: Module = model.model
        window = WINDOWS[type(model)]
        self._embed: Module = model.get_input_embeddings()
        self._rotary: Module = stack.rotary_emb
        self._layers = [FusedLayer(layer, window(layer.self_attn)) for layer in stack.layers]
        self._recorded = RecordedLayers(self._layers)
        self._norm = Norm(stack.norm)
        self._head: Module = model.get_output_embeddings()

    def __call__(
        self, token_ids: Tensor, positions: Tensor, kept: Tensor, step: StepAttention
    ) -> Tensor:
        x = self._embed(token_ids[None])[0]  # as the model itself calls it
        turn = rotary_turn(*self._rotary(x, positions[None]))
        x = self._behind_layers(x, turn, step)
        logits: Tensor = self._head(self._norm(x.index_select(0, kept)))
        return logits

    def _behind_layers(self, x: Tensor, turn: Turn, step: StepAttention) -> Tensor:
        if (recorded := self._recorded(x, turn, step)) is not None:
            return recorded
        for layer in self._layers:
            x = layer(x, turn, step)
        return x


class Norm:
    """A model's RMSNorm in one operation."""

    def __init__(self, norm: Module) -> None:
        self.weight: Tensor = norm.weight.detach()
        self.epsilon: float = norm.variance_epsilon
        self._has_kernel = suit(self.weight)

    def __call__(self, x: Tensor) -> Tensor:
        if self._has_kernel:
            return layer_ops.rms_norm(x, self.weight, self.epsilon)
        return F.rms_norm(x, self.weight.shape, self.weight, self.epsilon)


class FusedLayer:
    def __init__(self, layer: Module, window: int | None) -> None:
        attention, config = layer.self_attn, layer.self_attn.config
        self._index: int = attention.layer_idx
        self._heads: tuple[int, int] = (config.num_attention_heads, config.num_key_value_heads)
        self._head_dim: int = attention.head_dim
        self._scale: float = attention.scaling
        self._window = window
        self._norms = Norm(layer.input_layernorm), Norm(layer.post_attention_layernorm)
        self._head_norms: tuple[Norm, Norm] | None = None
        if hasattr(attention, "q_norm"):
            self._head_norms = Norm(attention.q_norm), Norm(attention.k_norm)
        self._has_kernel = suit(self._norms[0].weight)
        self._qkv, self._o = attention.qkv_proj, attention.o_proj
        self._gated, self._down = gated_by(layer.mlp), layer.mlp.down_proj

    def __call__(self, x: Tensor, turn: Turn, step: StepAttention) -> Tensor:
        """[tokens, hidden]; `x` may be changed."""
        before_attention, before_mlp = self._norms
        x = plus(self._o, self._attended(before_attention(x), turn, step), x)
        return plus(self._down, self._gated(before_mlp(x)), x)

    def _attended(self, x: Tensor, turn: Turn, step: StepAttention) -> Tensor:
        """[tokens, heads * head_dim]"""
        n, n_kv = self._heads
        qkv: Tensor = self._qkv(x).view(len(x), n + 2 * n_kv, self._head_dim)
        if isinstance(step, PagedStep):
            norms = self._head_norms
            out = step.attend_joined(
                self._index, qkv, turn, norms, scale=self._scale, window=self._window
            )
            return out.flatten(1)
        qk = self._turned(qkv[:, : n + n_kv], turn)
        q, k = qk[:, :n], qk[:, n:]
        v = qkv[:, n + n_kv :]
        out = step.attend(self._index, q, k, v, scale=self._scale, window=self._window)
        return out.flatten(1)

    def _turned(self, qk: Tensor, turn: Turn) -> Tensor:
        """[tokens, heads + kv_heads, head_dim], which may be changed."""
        n, norms = self._heads[0], self._head_norms
        if self._has_kernel:
            layer_ops.turn(qk, turn.cos, turn.sin, norms, n)
            return qk
        if norms is not None:
            parts = zip(norms, (qk[:, :n], qk[:, n:]), strict=True)
            qk = torch.cat([norm(part) for norm, part in parts], 1)
        return turn.apply(qk)


def gated_by(mlp: Module) -> Callable[[Tensor], Tensor]:
    """What a gated feed-forward computes before its last matrix."""
    if not hasattr(mlp, "gate_up_proj"):
        return partial(gated, mlp.gate_proj, mlp.up_proj)

    def joined(x: Tensor) -> Tensor:
        both: Tensor = mlp.gate_up_proj(x)
        if both.is_cuda:
            from deployments.engine.kernels.gpu.layer_ops import swiglu

            return swiglu(both)
        gate, up = both.chunk(2, -1)
        return F.silu(gate).mul_(up)

    return joined


def _is_plain(model: PreTrainedModel) -> bool:
    """Whether it is as most of its kind are: whole heads are turned, and the gate is a SiLU."""
    stack: Module = model.model
    turned = 2 * len(stack.rotary_emb.inv_freq)
    return bool(turned == stack.layers[0].self_attn.head_dim and model.config.hidden_act == "silu")


def _is_fused(model: PreTrainedModel) -> bool:
    return type(model) in WINDOWS and hasattr(model.model.layers[0].self_attn, "qkv_proj")


def _join(module: nn.Module, name: str, parts: tuple[str, ...]) -> None:
    """One matrix in the place of several; the several are gone."""
    linears: list[Module] = [module.get_submodule(part) for part in parts]
    weight = torch.cat([linear.weight for linear in linears])
    joined = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    joined.weight = nn.Parameter(weight, requires_grad=False)
    if linears[0].bias is not None:
        joined.bias = nn.Parameter(torch.cat([linear.bias for linear in linears]))
    for part in parts:
        delattr(module, part)
    module.add_module(name, joined)
