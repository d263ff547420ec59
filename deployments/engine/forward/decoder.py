"""From token ids to logits, by a Hugging Face model or by its fused form.

The fused form has the same weights. It multiplies them in fewer and larger operations.
"""

from collections.abc import Callable

from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.attention.interface import FusedStepAttention, StepAttention
from deployments.engine.forward.cpu_recording import RecordedLayers
from deployments.engine.forward.fusing import WINDOWS, Module, is_fused
from deployments.engine.forward.layer import FusedLayer, Norm
from deployments.engine.kernels.rotary import RotaryEmbedding, rotary_embedding

# token_ids [tokens], positions [tokens], logit_indices [logits], step -> logits [logits, vocab]
Decoder = Callable[[Tensor, Tensor, Tensor, FusedStepAttention], Tensor]


def decoder(model: PreTrainedModel) -> Decoder:
    """The decoder of a model: a fused one if the model was fused."""
    return FusedDecoder(model) if is_fused(model) else PlainDecoder(model)


class PlainDecoder:
    """The model as transformers runs it, with our attention."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model

    def __call__(
        self, token_ids: Tensor, positions: Tensor, logit_indices: Tensor, step: StepAttention
    ) -> Tensor:
        logits: Tensor = self._model(
            input_ids=token_ids[None],
            position_ids=positions[None],
            use_cache=False,
            logits_to_keep=logit_indices,
            step=step,
        ).logits[0]
        return logits


class FusedDecoder:
    """Layers of attention and a gated feed-forward, each after an RMSNorm."""

    def __init__(self, model: PreTrainedModel) -> None:
        base: Module = model.model
        window = WINDOWS[type(model)]
        self._embed: Module = model.get_input_embeddings()
        self._rotary: Module = base.rotary_emb
        self._layers = [FusedLayer(layer, window(layer.self_attn)) for layer in base.layers]
        self._recorded = RecordedLayers(self._layers)
        self._norm = Norm(base.norm)
        self._head: Module = model.get_output_embeddings()

    def __call__(
        self, token_ids: Tensor, positions: Tensor, logit_indices: Tensor, step: FusedStepAttention
    ) -> Tensor:
        x = self._embed(token_ids[None])[0]  # with the batch dimension that transformers passes
        rotary = rotary_embedding(*self._rotary(x, positions[None]))
        x = self._run_layers(x, rotary, step)
        logits: Tensor = self._head(self._norm(x.index_select(0, logit_indices)))
        return logits

    def _run_layers(self, x: Tensor, rotary: RotaryEmbedding, step: FusedStepAttention) -> Tensor:
        if (recorded := self._recorded(x, rotary, step)) is not None:
            return recorded
        for layer in self._layers:
            x = layer(x, rotary, step)
        return x
