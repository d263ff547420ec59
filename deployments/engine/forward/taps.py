"""Hidden states from between a model's layers, for what reads more of a step than its logits."""

from collections.abc import Sequence

import torch
from torch import Tensor

from deployments.engine.errors import UnsupportedModelError

LAST_NORM = -1  # in the place of a layer: what the head reads


class Taps:
    """The states that some layers read of some tokens, in the step in progress."""

    def __init__(self, layers: Sequence[int], tokens: Tensor) -> None:
        """layers: by number, from 0; LAST_NORM among them. tokens: [n], their indices in the
        batch."""
        self._layers = layers
        self.layers = frozenset(layers) - {LAST_NORM}  # those that are tapped
        self._tokens = tokens
        self._read: dict[int, Tensor] = {}

    def read(self, layer: int, hidden: Tensor) -> None:
        """A layer is about to read these states, or the head. hidden [tokens, hidden]"""
        if layer in self._layers:
            self._read[layer] = hidden.index_select(0, self._tokens)

    def joined(self) -> Tensor:
        """All states of a token behind each other, in the order of the layers that were asked for.
        [n, layers * hidden]

        Raises UnsupportedModelError for a layer that the model does not have.
        """
        missing = {*self._layers} - self._read.keys()
        if missing:
            raise UnsupportedModelError(f"the model has no layers {sorted(missing)} to be tapped")
        parts = [self._read[n] for n in self._layers]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)


class StaticTaps:
    """The states of all tokens of a captured step, which the next one overwrites."""

    def __init__(
        self, layers: Sequence[int] = (), n_tokens: int = 0, device: torch.device | None = None
    ) -> None:
        """n_tokens: of the largest step."""
        self._layers = [*layers]
        self._tokens = torch.arange(n_tokens, device=device)
        self._states: Tensor | None = None  # [n_tokens, layers * hidden]

    def taps(self, n_tokens: int) -> Taps:
        return Taps(self._layers, self._tokens[:n_tokens])

    def keep(self, taps: Taps) -> None:
        """Keeps what taps have read."""
        if not self._layers:
            return
        joined = taps.joined()
        if self._states is None:
            self._states = joined.new_empty(len(self._tokens), joined.shape[1])
        self._states[: len(joined)].copy_(joined)

    def serve(self, layers: Sequence[int], n_tokens: int, n_asked: int) -> bool:
        """Whether they are asked for: the same layers, of all tokens of a step."""
        return bool(self._layers) and [*layers] == self._layers and n_tokens == n_asked

    def read(self, n_tokens: int) -> Tensor:
        """[tokens, layers * hidden]"""
        assert self._states is not None, "no step is captured"
        return self._states[:n_tokens]


NO_TAPS = Taps((), torch.empty(0, dtype=torch.int64))
