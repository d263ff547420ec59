"""What a model's layers ask of the attention of a step. Each backend is one class that answers."""

from typing import NamedTuple, Protocol

from torch import Tensor

from deployments.engine.kernels.rotary import HeadNorm, RotaryEmbedding


class AttentionParams(NamedTuple):
    """How a layer makes its attention scores."""

    scale: float  # of the products of queries and keys
    window: int | None = None  # tokens that a token sees, itself included; None: all before it
    softcap: float | None = None  # bound of the scores, by tanh
    sinks: Tensor | None = None  # [heads], a score without a value in each softmax


class StepAttention(Protocol):
    """The attention layers of one forward pass, as Hugging Face models call them."""

    def attend(
        self,
        layer: int,
        q: Tensor,  # [tokens, heads, head_dim], rotary embedding applied
        k: Tensor,  # [tokens, kv_heads, head_dim], rotary embedding applied
        v: Tensor,  # [tokens, kv_heads, head_dim]
        params: AttentionParams,
    ) -> Tensor:
        """Stores the new keys and values in their pages, then attends to all of each row.

        Returns [tokens, heads, head_dim]. Raises ValueError for shapes or types that do not fit
        the pages.
        """


class FusedStepAttention(StepAttention, Protocol):
    """The same, as fused layers call it: each backend fuses what it can."""

    def attend_qkv(
        self,
        layer: int,
        qkv: Tensor,  # [tokens, heads + 2 * kv_heads, head_dim], contiguous; may be changed
        rotary: RotaryEmbedding,
        norms: tuple[HeadNorm, HeadNorm] | None,  # of queries and of keys, before the rotary
        params: AttentionParams,
    ) -> Tensor:
        """Applies norms and rotary embedding, then does what `attend` does.

        Returns [tokens, heads, head_dim].
        """
