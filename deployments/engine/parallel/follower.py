"""Runs the ranks behind rank 0: each computes the steps that rank 0 sends, and drops the result."""

from dataclasses import fields

import numpy as np
import torch
from transformers import PreTrainedModel

from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.forward import Forward
from deployments.engine.forward.fusing import fuse
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.loading.attention_check import find_layout
from deployments.engine.loading.loader import replace_attention
from deployments.engine.parallel.ranks import Ranks, RanksLostError
from kv.cache import CacheShape
from kv.layout import Layout, within

SENT_SIZES = tuple(field.name for field in fields(CacheShape) if field.name != "layout")


def find_layout_together(model: PreTrainedModel, ranks: Ranks) -> Layout:
    """What rank 0 stores of a token. All ranks find out their own share, by the first message to
    `follow`.

    Raises UnsupportedModelError as `find_layout` does, RanksLostError.
    """
    try:
        with ranks.in_step(np.zeros(1, dtype=np.int64)):
            return find_layout(model)
    except RanksLostError as error:
        if isinstance(error.__cause__, UnsupportedModelError):
            raise error.__cause__ from None
        raise


def send_cache_shape(ranks: Ranks, shape: CacheShape) -> None:
    """Sends the sizes of each rank's cache from rank 0, as the second message to `follow`.

    Raises RanksLostError.
    """
    sizes = [getattr(shape, name) for name in SENT_SIZES]
    with ranks.in_step(np.array(sizes, dtype=np.int64)):
        pass


@torch.inference_mode()
def follow(model: PreTrainedModel, ranks: Ranks) -> None:
    """Computes every step that rank 0 sends. Returns when rank 0 stops the group.

    model: this rank's shard. Its attention is replaced, and it is fused.
    Raises whatever fails. The other ranks can't go on without this one then.
    """
    ranks.receive()
    layout = find_layout(model)
    sizes = dict(zip(SENT_SIZES, ranks.receive().tolist(), strict=True))
    shape = CacheShape(layout=within(layout, sizes["max_tokens"]), **sizes)
    replace_attention(model, shape.max_tokens)
    fuse(model)
    forward = Forward(model, shape.storage(model.dtype, model.device))
    while len(packed := ranks.receive()):
        forward.compute(StepInputs.unpack(packed))
    ranks.stop()
