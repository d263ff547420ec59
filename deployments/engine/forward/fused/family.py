"""Describes a family of models with a fused form: the parts in which its layers differ."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from torch import Tensor
from transformers import PretrainedConfig, PreTrainedModel

from deployments.engine.forward.module import Module

QKV, GATE_UP = "qkv_proj", "gate_up_proj"  # projections that read the same input, as one
ROTATED, NOT_ROTATED = "", "not rotated"  # by the model's only rotary embedding, and by none


class Angles(Enum):
    """How often, and where, a model's rotary embedding tells the angle of two numbers that are
    rotated together."""

    TWICE = auto()  # all angles, and then once more
    ONCE = auto()
    IN_PAIRS = auto()  # twice, one beside the other
    COMPLEX = auto()  # once, as numbers whose parts are cosine and sine


class NormNames(NamedTuple):
    """The norms of a layer, before and behind its attention and its feed-forward. None: the layer
    has no norm there."""

    before_attention: str | None
    behind_attention: str | None
    before_mlp: str | None
    behind_mlp: str | None


BEFORE = NormNames("input_layernorm", None, "post_attention_layernorm", None)
BEHIND = NormNames(None, "post_attention_layernorm", None, "post_feedforward_layernorm")
PARALLEL = NormNames("input_layernorm", None, None, None)
BOTH = NormNames(
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)


def none(attention: Module) -> None:
    return None


def _no_scale(config: PretrainedConfig, rotary: str, positions: Tensor) -> Tensor | None:
    return None


@dataclass(frozen=True, slots=True)
class Family:
    """Layers of attention and a feed-forward, with norms. The functions read an attention layer,
    or a configuration.

    model_class: without its subclasses, which may compute something else under the same names.
    window: its window, in tokens; None: it attends to all.
    has_tumbling_windows: whether windows lie side by side, and do not slide.
    qk_norms: its RMSNorms of queries and of keys, each over one head, or over all.
    has_qk_norms_behind: whether these follow the rotary embedding.
    rotary: the layer type for which the model's rotary embedding is asked, ROTATED or NOT_ROTATED.
    angles: how the rotary embedding tells them.
    is_interleaved: whether two neighbours are rotated together, not numbers of both halves.
    query_scale: a factor of queries at positions [1, tokens], in the same shape, in layers with
        this `rotary`.
    softcap: the bound of its scores.
    sinks: [heads], a score without a value in each softmax.
    gates_outputs: whether each head of queries is followed by a gate of its result.
    mixer: what a layer has in the place of attention, which keeps a state.
    mlp: the feed-forward of a layer: a gated one, or experts.
    scales_expert_inputs: whether the weights of experts are factors of what they read, and not of
        what they answer.
    adapt: gives a model's modules the interface that others have, before it is fused; it may be
        called again.
    norm_plus: what norms add to their weights.
    has_centered_norms: whether a layer's norms are LayerNorms without a bias, not RMSNorms.
    is_parallel: whether the feed-forward reads what attention reads.
    residual_factor: of what layers add to the hidden states.
    embedding_factor: of the embeddings, behind that of the model's embedding layer.
    changes_logits: whether something follows the last matrix.
    joined: the projections that are joined in the checkpoint.
    is_usual: whether models with such a configuration compute nothing else.
    """

    model_class: type[PreTrainedModel]
    window: Callable[[Module], int | None] = none
    has_tumbling_windows: bool = False
    qk_norms: Callable[[Module], tuple[Module, Module] | None] = none
    has_qk_norms_behind: bool = False
    rotary: Callable[[Module], str] = lambda attention: ROTATED
    angles: Angles = Angles.TWICE
    is_interleaved: bool = False
    query_scale: Callable[[PretrainedConfig, str, Tensor], Tensor | None] = _no_scale
    softcap: Callable[[Module], float | None] = none
    sinks: Callable[[Module], Tensor | None] = none
    gates_outputs: bool = False
    mixer: Callable[[Module], Module | None] = none
    mlp: Callable[[Module], Module] = lambda layer: layer.mlp
    scales_expert_inputs: bool = False
    adapt: Callable[[PreTrainedModel], None] = lambda model: None
    norms: NormNames = BEFORE
    norm_plus: float = 0.0
    has_centered_norms: bool = False
    is_parallel: bool = False
    residual_factor: Callable[[PretrainedConfig], float] = lambda config: 1.0
    embedding_factor: Callable[[PretrainedConfig], float] = lambda config: 1.0
    changes_logits: Callable[[PretrainedConfig], bool] = lambda config: False
    joined: frozenset[str] = frozenset()
    is_usual: Callable[[PretrainedConfig], bool] = lambda config: True
