"""An EAGLE-3 head: one decoder layer that drafts by hidden states of the model it was made for.

It reads a token together with the state of the token before it, which is joined from states of
three of the model's layers. In the place of a state that the model has not computed yet stands the
head's own. Li et al., EAGLE-3, 2025
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from deployments.engine.attention.interface import AttentionParams, FusedStepAttention
from deployments.engine.forward.draft_heads.norm import DraftNorm
from deployments.engine.forward.fused.norm import Norm
from deployments.engine.forward.linear import gate_mul, linear_add
from deployments.engine.kernels.activations import GateActivation
from deployments.engine.kernels.cpu import layer_ops
from deployments.engine.kernels.rotary import RotaryEmbedding, RotaryTable, rotary_embedding
from deployments.engine.sampling.strategy import BANNED


@dataclass(frozen=True, slots=True, kw_only=True)
class EagleConfig:
    """The sizes and options of a head.

    target_size: of a hidden state of the model.
    n_taps: layers of the model whose states are joined.
    tapped: these layers, by number from 0: the state that a layer reads. None: those that heads
        have by default.
    vocab_size: tokens that the head can say.
    rotary: fields of a Llama's config that its rotary embedding goes by.
    norm_before_fc: the joined states are normed as one; fc_norm: each is normed by itself.
    norm_before_residual: what attention adds to is the normed state.
    norm_output: the head's own state is the one behind its last norm.
    has_head_norms: queries and keys are normed. biases: names of the linear layers with a bias.
    has_embedding, has_head: the head has its own, in place of the model's.
    """

    hidden_size: int
    intermediate_size: int
    heads: int
    kv_heads: int
    head_dim: int
    epsilon: float
    target_size: int
    n_taps: int
    tapped: tuple[int, ...] | None
    vocab_size: int
    target_vocab_size: int
    rotary: Mapping[str, Any]
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_before_residual: bool = False
    norm_output: bool = False
    has_head_norms: bool = False
    has_embedding: bool = False
    has_head: bool = True
    biases: frozenset[str] = field(default_factory=frozenset)

    def tapped_of(self, n_layers: int) -> tuple[int, ...]:
        """The tapped layers of a model with so many."""
        return (2, n_layers // 2, n_layers - 3) if self.tapped is None else self.tapped


class EagleHead(nn.Module):
    """A head, with its weights in the names of the files but for joined Q, K and V."""

    target_ids: Tensor | None  # [vocab] the model's id of each token that the head can say

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        self.config = config
        size = config.hidden_size
        if config.norm_before_fc:
            self.input_norm = DraftNorm(config.n_taps * config.target_size, config.epsilon)
        if config.fc_norm:
            norms = (DraftNorm(config.target_size, config.epsilon) for _ in range(config.n_taps))
            self.fc_norm = nn.ModuleList(norms)
        self.fc = _linear("fc", config.n_taps * config.target_size, size, config)
        self.layers = nn.ModuleList([EagleLayer(config)])
        self.norm = DraftNorm(size, config.epsilon)
        if config.has_embedding:
            self.embed_tokens = nn.Embedding(config.target_vocab_size, size)
        if config.has_head:
            self.lm_head = nn.Linear(size, config.vocab_size, bias=False)
        self.register_buffer("target_ids", None)
        self.rotary_emb = rotary_of(config)
        self._rotary_table: RotaryTable | None = None

    def join(self, tapped: Tensor) -> Tensor:
        """[tokens, taps * target_size] -> the states that the head reads [tokens, hidden]"""
        config = self.config
        if config.norm_before_fc:
            tapped = self.input_norm(tapped)
        if config.fc_norm:
            parts = zip(self.fc_norm, torch.split(tapped, config.target_size, 1), strict=True)
            tapped = torch.cat([norm(part.contiguous()) for norm, part in parts], 1)
        joined: Tensor = self.fc(tapped)
        return joined

    @property
    def layer(self) -> "EagleLayer":
        found = self.layers[0]
        assert isinstance(found, EagleLayer)
        return found

    def forward(
        self, embedded: Tensor, states: Tensor, positions: Tensor, step: FusedStepAttention
    ) -> Tensor:
        """Reads tokens [tokens, hidden], each with the state of the token before it [tokens,
        hidden], which may be changed. positions [tokens]. Returns the layer's output. [tokens,
        hidden]"""
        joined = self.layer.join(embedded, states)
        output: Tensor = self.layer(*joined, self.rotary(positions), step)
        return output

    def store(
        self, embedded: Tensor, states: Tensor, positions: Tensor, step: FusedStepAttention
    ) -> None:
        """Reads tokens, as `forward` does, for what is stored of them alone."""
        read, _ = self.layer.join(embedded, states)
        self.layer.store(read, self.rotary(positions), step)

    def rotary(self, positions: Tensor) -> RotaryEmbedding:
        """The rotary embedding at positions [tokens]."""
        return (
            self._rotary_at(positions[None]) if positions.is_cuda else self._table.take(positions)
        )

    def rotary_into(self, out: RotaryEmbedding, positions: Tensor) -> None:
        """Writes the same, on a CPU."""
        self._table.take_into(out, positions)

    @property
    def _table(self) -> RotaryTable:
        if self._rotary_table is None:
            self._rotary_table = RotaryTable(self._rotary_at)
        return self._rotary_table

    def _rotary_at(self, positions: Tensor) -> RotaryEmbedding:
        return rotary_embedding(*self.rotary_emb(self.norm.weight, positions))

    def own_states(self, output: Tensor) -> Tensor:
        """The states that stand for the model's own behind the tokens read last, of the layer's
        output. [tokens, hidden]"""
        return self.norm(output) if self.config.norm_output else output

    def logits(self, output: Tensor, lm_head: nn.Module, target_vocab_size: int) -> Tensor:
        """Logits of the model's tokens behind the tokens read last [tokens, target_vocab_size], of
        the layer's output. `lm_head` is the head's own, or the model's."""
        logits: Tensor = lm_head(self.norm(output))
        if self.target_ids is None:
            return logits
        of_all = logits.new_full((len(logits), target_vocab_size), BANNED)
        return of_all.index_copy_(1, self.target_ids, logits)


class EagleLayer(nn.Module):
    """A decoder layer whose attention reads a token's embedding beside a state."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        size, epsilon = config.hidden_size, config.epsilon
        self.input_layernorm = DraftNorm(size, epsilon)
        self.hidden_norm = DraftNorm(size, epsilon)
        self.post_attention_layernorm = DraftNorm(size, epsilon)
        self.self_attn = EagleAttention(config)
        self.mlp = EagleMlp(config)
        self._norms_residual = config.norm_before_residual

    def join(self, embedded: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """Returns what the layer reads [tokens, 2 * hidden], and its residual. [tokens, hidden]"""
        normed = self.hidden_norm(states)
        read = torch.cat([self.input_layernorm(embedded), normed], 1)
        return read, normed if self._norms_residual else states

    def join_by_kernel(
        self,
        token_ids: Tensor,
        embeddings: Tensor,
        states: Tensor,
        rows: Tensor,
        given: Tensor | None = None,
        kept_at: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The same, of what `layer_ops.join_states` takes. For bfloat16 on a CPU."""
        norms = Norm(self.input_layernorm), Norm(self.hidden_norm)
        return layer_ops.join_states(
            token_ids,
            embeddings,
            states,
            rows,
            norms,
            norms_residual=self._norms_residual,
            given=given,
            kept_at=kept_at,
        )

    def store(self, read: Tensor, rotary: RotaryEmbedding, step: FusedStepAttention) -> None:
        """Stores keys and values of what it reads, and computes nothing else."""
        self.self_attn.store(read, rotary, step)

    def forward(
        self, read: Tensor, residual: Tensor, rotary: RotaryEmbedding, step: FusedStepAttention
    ) -> Tensor:
        """`residual` may be changed. [tokens, hidden]"""
        attention, mlp = self.self_attn, self.mlp
        x = linear_add(attention.o_proj, attention(read, rotary, step), residual)
        return linear_add(mlp.down_proj, mlp(self.post_attention_layernorm(x)), x)


class EagleAttention(nn.Module):
    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        self._heads, self._head_dim = config.heads, config.head_dim
        self._n_heads = config.heads + 2 * config.kv_heads
        self._params = AttentionParams(config.head_dim**-0.5)
        n = config.head_dim
        self.qkv_proj = _linear("qkv_proj", 2 * config.hidden_size, self._n_heads * n, config)
        self.o_proj = _linear("o_proj", config.heads * n, config.hidden_size, config)
        self._has_norms = config.has_head_norms
        if config.has_head_norms:
            self.q_norm, self.k_norm = DraftNorm(n, config.epsilon), DraftNorm(n, config.epsilon)

    def forward(self, read: Tensor, rotary: RotaryEmbedding, step: FusedStepAttention) -> Tensor:
        """[tokens, 2 * hidden] -> [tokens, heads * head_dim]"""
        qkv, norms = self._qkv(read)
        return step.attend_qkv(0, qkv, rotary, norms, self._params).flatten(1)

    def store(self, read: Tensor, rotary: RotaryEmbedding, step: FusedStepAttention) -> None:
        qkv, norms = self._qkv(read)
        step.store_qkv(0, qkv, rotary, norms)

    def _qkv(self, read: Tensor) -> tuple[Tensor, tuple[Norm, Norm] | None]:
        qkv: Tensor = self.qkv_proj(read).view(len(read), self._n_heads, self._head_dim)
        return qkv, (Norm(self.q_norm), Norm(self.k_norm)) if self._has_norms else None


class EagleMlp(nn.Module):
    """The part of a gated feed-forward before its last matrix."""

    def __init__(self, config: EagleConfig) -> None:
        super().__init__()
        sizes = config.hidden_size, config.intermediate_size
        self.gate_proj = _linear("gate_proj", *sizes, config)
        self.up_proj = _linear("up_proj", *sizes, config)
        self.down_proj = _linear("down_proj", *sizes[::-1], config)

    def forward(self, x: Tensor) -> Tensor:
        """[tokens, hidden] -> [tokens, intermediate]"""
        return gate_mul(GateActivation.SILU, self.gate_proj, self.up_proj, x)


def rotary_of(config: EagleConfig) -> nn.Module:
    rotary: nn.Module = LlamaRotaryEmbedding(LlamaConfig(**config.rotary))
    return rotary


def _linear(name: str, n_in: int, n_out: int, config: EagleConfig) -> nn.Module:
    return nn.Linear(n_in, n_out, bias=name in config.biases)
