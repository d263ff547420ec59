"""Runs the ranks behind rank 0: each computes what rank 0 computes, and drops the result.

Whatever rank 0 calls here sends a message, and computes with the others what it asks for.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from enum import IntEnum

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from deployments.engine.cache_sizing import cache_shape
from deployments.engine.errors import UnsupportedModelError
from deployments.engine.forward.execution import Execution
from deployments.engine.forward.forward import Forward, make_forward
from deployments.engine.forward.fused.fusing import fuse
from deployments.engine.forward.inputs import StepInputs
from deployments.engine.limits import EngineLimits
from deployments.engine.loading.attention_check import find_decoding
from deployments.engine.loading.loaded_model import LoadedModel
from deployments.engine.loading.loader import replace_attention
from deployments.engine.parallel.ranks import STOP, Ranks, RanksLostError
from deployments.engine.transfer import to_device
from kv.arrays import IntArray
from kv.shape import CacheShape
from kv.storage import Storage

SENT_SIZES = tuple(field.name for field in fields(CacheShape) if field.name != "layout")


class Tag(IntEnum):
    """The kind of a message: what it asks for."""

    STOP = STOP
    LAYOUT = 1
    CACHE_SHAPE = 2
    STEP = 3
    CAPTURE = 4


def find_decoding_together(model: PreTrainedModel, ranks: Ranks) -> Execution:
    """Returns how rank 0 computes its share. All ranks find out their own.

    Raises UnsupportedModelError as `find_decoding` does, RanksLostError.
    """
    try:
        with ranks.in_step(Tag.LAYOUT):
            return find_decoding(model)
    except RanksLostError as error:
        if isinstance(error.__cause__, UnsupportedModelError):
            raise error.__cause__ from None
        raise


def shape_together(
    loaded: LoadedModel, execution: Execution, limits: EngineLimits, ranks: Ranks
) -> CacheShape:
    """The shape of rank 0's cache. Other ranks make theirs as large.

    Raises ValueError and UnsupportedModelError as `cache_shape` does, RanksLostError.
    """
    with ranks.apart():  # the size of a state is found by computing one
        shape = cache_shape(loaded, execution, limits, ranks.world_size)
    sizes = [getattr(shape, name) for name in SENT_SIZES]
    # Which windows there are was decided before the longest sequence was known.
    sizes += [layer_shape.window or 0 for layer_shape in shape.layout]
    with ranks.in_step(Tag.CACHE_SHAPE, np.array(sizes, dtype=np.int64)):
        return shape


class SharedForward(Forward):
    """Rank 0's share of a model. All ranks compute its steps, and capture the same graphs.

    Its methods raise RanksLostError for any failure.
    """

    def __init__(self, own: Forward, storage: Storage, ranks: Ranks) -> None:
        """`own` is computed by this rank, with `storage`."""
        super().__init__(storage)
        self._own = own
        self._ranks = ranks

    @property
    def reads_host_table(self) -> bool:
        return self._own.reads_host_table

    def capture(self, max_rows: int, max_tokens: int, tapped: Sequence[int] = ()) -> None:
        assert not tapped, "other ranks are not told of it"
        with self._ranks.in_step(Tag.CAPTURE, np.array([max_rows, max_tokens], dtype=np.int64)):
            self._own.capture(max_rows, max_tokens)

    def drop_graphs(self) -> None:
        self._own.drop_graphs()

    def compute(self, step: StepInputs) -> tuple[Tensor, Tensor]:
        with self._sent(step) as sent:
            return self._own.compute(sent)

    def logits(self, step: StepInputs) -> Tensor:
        with self._sent(step) as sent:
            return self._own.logits(sent)

    @contextmanager
    def _sent(self, step: StepInputs) -> Iterator[StepInputs]:
        step = replace(step, new_pages=step.find_new_pages(self.page_size))
        with self._ranks.in_step(Tag.STEP, step.pack()):
            width = step.table_shape(self.page_size)[-1]
            pages = step.page_table[:, :, :width].astype(np.int32)
            table = self._ranks.share(to_device(pages, self._ranks.device))
            if step.sampled_ids is not None:
                self._ranks.share(step.sampled_ids)
            yield step if self.reads_host_table else replace(step, device_table=table)


@torch.inference_mode()
def follow(model: PreTrainedModel, ranks: Ranks) -> None:
    """Computes every step that rank 0 sends. Returns when rank 0 stops the group.

    model: this rank's shard. Its attention is replaced, and it is fused.
    Raises whatever fails. The other ranks can't go on without this one then.
    """
    _expect(Tag.LAYOUT, ranks)
    execution = find_decoding(model)
    sent = _expect(Tag.CACHE_SHAPE, ranks).tolist()
    sizes = dict(zip(SENT_SIZES, sent, strict=False))
    windows = zip(execution.layout, sent[len(SENT_SIZES) :], strict=True)
    layout = tuple(layer_shape._replace(window=window or None) for layer_shape, window in windows)
    shape = CacheShape(layout=layout, **sizes)
    replace_attention(model, execution, shape.max_tokens)
    fuse(model)
    storage = shape.storage(model.dtype, model.device)
    forward = make_forward(model, execution, storage, shape.n_state_slots, ranks)
    while (message := ranks.receive())[0] != Tag.STOP:
        _compute(forward, *message, ranks)
    forward.drop_graphs()
    ranks.stop()


def _compute(forward: Forward, tag: int, message: IntArray, ranks: Ranks) -> None:
    if tag == Tag.CAPTURE:
        max_rows, max_tokens = message.tolist()
        forward.capture(max_rows, max_tokens)
    else:
        forward.compute(_received_step(message, forward, ranks))


def _expect(tag: Tag, ranks: Ranks) -> IntArray:
    received, message = ranks.receive()
    if received != tag:  # rank 0 has stopped the group, or has lost step
        raise RanksLostError(f"rank 0 sent {Tag(received).name} in the place of {tag.name}")
    return message


def _received_step(packed: IntArray, forward: Forward, ranks: Ranks) -> StepInputs:
    """The page table, which is large, and token ids that no host knows yet go from device to
    device."""
    step, device = StepInputs.unpack(packed), ranks.device
    shape = step.table_shape(forward.page_size)
    table = ranks.share(torch.empty(shape, dtype=torch.int32, device=device))
    if n_sampled := len(step.sampled_at):
        ids = torch.empty(n_sampled, dtype=torch.int64, device=device)
        step = replace(step, sampled_ids=ranks.share(ids))
    if forward.reads_host_table:
        return replace(step, page_table=table.cpu().numpy().astype(np.int64))
    return replace(step, device_table=table)
