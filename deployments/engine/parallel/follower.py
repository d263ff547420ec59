"""What the ranks behind rank 0 do: compute what it sends with their share, and drop the result."""

from dataclasses import astuple, fields

import numpy as np
import torch
from transformers import PreTrainedModel

from deployments.engine.forward.forward import Forward
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.loading.loader import attach
from deployments.engine.parallel.ranks import Ranks
from kv.cache import CacheShape


def lead(ranks: Ranks, shape: CacheShape) -> None:
    """Rank 0's first word to those who `follow`: the cache that each has its share of."""
    with ranks.in_step(np.array(astuple(shape), dtype=np.int64)):
        pass


@torch.inference_mode()
def follow(model: PreTrainedModel, ranks: Ranks) -> None:
    """Returns when rank 0 stops the group; raises what ends this rank, and with it the others."""
    names = [field.name for field in fields(CacheShape)]
    shape = CacheShape(**dict(zip(names, ranks.receive().tolist(), strict=True)))
    attach(model, shape)
    forward = Forward(model, shape.storage(model.dtype, model.device))
    while len(packed := ranks.receive()):
        forward.logits(StepInputs.unpack(packed))
    ranks.stop()
