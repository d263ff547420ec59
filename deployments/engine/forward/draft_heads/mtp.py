"""An MTP head: one layer of the model's own kind that was trained with it, to say a token more.

It reads a token together with the state of the token before it: that behind the model's last norm.
In the place of a state that the model has not computed yet stands the head's own, behind its own
last norm. So one layer says any number of tokens. DeepSeek-AI, DeepSeek-V3 Technical Report, 2024
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deployments.engine.attention.interface import FusedStepAttention
from deployments.engine.forward.decoder import Decoder
from deployments.engine.forward.draft_heads.norm import DraftNorm
from deployments.engine.forward.input_vectors import InputVectors


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinConfig:
    """How an embedding and a state are joined.

    norm_plus: what norms add to their weights.
    is_state_first: the state is before the embedding in what the matrix multiplies.
    """

    hidden_size: int
    epsilon: float
    norm_plus: float
    is_state_first: bool


class MtpJoin(nn.Module):
    """Makes what the layer reads of a token's embedding and of a state, which are both normed."""

    def __init__(self, config: JoinConfig) -> None:
        super().__init__()
        size, epsilon, plus = config.hidden_size, config.epsilon, config.norm_plus
        self.embedding_norm = DraftNorm(size, epsilon, plus)
        self.state_norm = DraftNorm(size, epsilon, plus)
        self.projection = nn.Linear(2 * size, size, bias=False)
        self._is_state_first = config.is_state_first

    def forward(self, embedded: Tensor, states: Tensor) -> Tensor:
        """Both [tokens, hidden] -> [tokens, hidden]"""
        parts = self.embedding_norm(embedded), self.state_norm(states)
        joined: Tensor = self.projection(torch.cat(parts[:: -1 if self._is_state_first else 1], 1))
        return joined


class MtpHead:
    """The join, and the layer behind it, which is a model of one layer."""

    def __init__(self, join: MtpJoin, decode: Decoder) -> None:
        self._join, self._decode = join, decode

    def join(self, tapped: Tensor) -> Tensor:
        """The states that the head reads are those of the model. [tokens, hidden]"""
        return tapped

    def __call__(
        self, embedded: Tensor, states: Tensor, positions: Tensor, step: FusedStepAttention
    ) -> Tensor:
        """Reads tokens [tokens, hidden], each with the state of the token before it [tokens,
        hidden]. positions [tokens]. Returns states behind the head's last norm. [tokens, hidden]"""
        joined = self._join(embedded, states)
        everywhere = torch.arange(len(joined), device=joined.device)
        # The model of one layer has no embeddings of tokens.
        nothing, vectors = torch.zeros_like(everywhere), InputVectors(everywhere, joined)
        return self._decode(nothing, positions, everywhere, step, vectors)

    def store(
        self, embedded: Tensor, states: Tensor, positions: Tensor, step: FusedStepAttention
    ) -> None:
        """Reads tokens, as a call does, for what is stored of them alone."""
        self(embedded, states, positions, step)

    def own_states(self, output: Tensor) -> Tensor:
        """The states in the place of the model's own, behind the tokens read. [tokens, hidden]"""
        return output

    def logits(self, output: Tensor, lm_head: nn.Module, target_vocab_size: int) -> Tensor:
        """Logits behind the tokens read last [tokens, vocab], by the model's last matrix."""
        logits: Tensor = lm_head(output)
        return logits
