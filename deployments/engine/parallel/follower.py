"""Runs the ranks behind rank 0: each computes the steps that rank 0 sends, and drops the result."""

from dataclasses import astuple, fields

import numpy as np
import torch
from transformers import PreTrainedModel

from deployments.engine.forward.forward import Forward
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.loading.loader import replace_attention
from deployments.engine.parallel.ranks import Ranks
from kv.cache import CacheShape


def send_cache_shape(ranks: Ranks, shape: CacheShape) -> None:
    """Sends the shape of each rank's cache from rank 0, as the first message to `follow`.

    Raises RanksLostError.
    """
    with ranks.in_step(np.array(astuple(shape), dtype=np.int64)):
        pass


@torch.inference_mode()
def follow(model: PreTrainedModel, ranks: Ranks) -> None:
    """Computes every step that rank 0 sends. Returns when rank 0 stops the group.

    model: this rank's shard. Its attention is replaced.
    Raises whatever fails. The other ranks can't go on without this one then.
    """
    names = [field.name for field in fields(CacheShape)]
    shape = CacheShape(**dict(zip(names, ranks.receive().tolist(), strict=True)))
    replace_attention(model, shape)
    forward = Forward(model, shape.storage(model.dtype, model.device))
    while len(packed := ranks.receive()):
        forward.logits(StepInputs.unpack(packed))
    ranks.stop()
