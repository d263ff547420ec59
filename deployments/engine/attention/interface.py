"""The interface between a model's layers and attention. Each backend is one class behind it."""

from typing import NamedTuple, Protocol

from torch import Tensor

from deployments.engine.kernels.norms import HeadNorm
from deployments.engine.kernels.rotary import RotaryEmbedding


class AttentionParams(NamedTuple):
    """How a layer computes its attention scores."""

    scale: float  # factor of the products of queries and keys
    window: int | None = None  # tokens that a token attends to, itself included; None: all
    softcap: float | None = None  # bound of the scores, by tanh
    sinks: Tensor | None = None  # [heads], a score without a value in each softmax
    # [heads], of ALiBi: times how far a key is before its query (a number below 0), to be added to
    # the score.
    slopes: Tensor | None = None


class StepAttention(Protocol):
    """The attention of one forward pass, as Hugging Face models call it."""

    def attend(
        self,
        layer: int,
        q: Tensor,  # [tokens, heads, head_dim], rotary embedding applied
        k: Tensor,  # [tokens, kv_heads, head_dim], rotary embedding applied
        v: Tensor,  # [tokens, kv_heads, head_dim]; or the first numbers of `k`, in its memory
        params: AttentionParams,
    ) -> Tensor:
        """Stores the new keys and values in the pages, then attends to the context of each row.

        Returns [tokens, heads, head_dim], of which the first numbers are the result where values
        are the first numbers of keys. Raises ValueError for shapes or types that do not fit
        the pages.
        """

    def store(self, layer: int, k: Tensor, v: Tensor) -> None:
        """Stores keys and values as `attend` does."""


class FusedStepAttention(StepAttention, Protocol):
    """The attention of one forward pass, as fused layers call it. A backend fuses what it can."""

    def attend_qkv(
        self,
        layer: int,
        qkv: Tensor,  # [tokens, heads + 2 * kv_heads, head_dim], contiguous; may be changed
        rotary: RotaryEmbedding,
        norms: tuple[HeadNorm, HeadNorm] | None,  # of queries and keys
        params: AttentionParams,
    ) -> Tensor:
        """Applies norms and rotary embedding to queries and keys, then does what `attend` does.

        Returns [tokens, heads, head_dim].
        """

    def store_qkv(
        self,
        layer: int,
        qkv: Tensor,
        rotary: RotaryEmbedding,
        norms: tuple[HeadNorm, HeadNorm] | None,
    ) -> object:
        """Does what `attend_qkv` does before it attends."""
