"""The inputs of one forward pass, as plain numbers that ranks can send to each other."""

from dataclasses import dataclass, field, fields
from math import prod
from typing import Any

import numpy as np
from torch import Tensor

from deployments.engine.attention.tiles import NO_SPANS
from deployments.engine.forward.cross_attention import EncoderStates
from deployments.engine.forward.taps import LAST_NORM
from deployments.engine.transfer import to_device
from kv.arrays import IntArray
from kv.storage import Storage
from kv.view import page_slots, token_slots

HEAD_ALONE = np.array([LAST_NORM], dtype=np.int64)
NO_ADAPTERS = np.empty(0, dtype=np.int64)
NO_SLOTS = np.empty((0, 2), dtype=np.int64)
NO_TOKENS = np.empty(0, dtype=np.int64)
NO_PAGES = np.empty((0, 0), dtype=np.int64)
NO_TABLE = np.empty((0, 0, 0), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class StepInputs:
    """A flat batch: the new tokens of its rows, row after row. A field is a column of numbers."""

    token_ids: IntArray  # [tokens]
    positions: IntArray  # [tokens], of each token in its row; pages go by them
    total_len: IntArray  # [rows], tokens of the row after this step
    new_len: IntArray  # [rows], new tokens of the row
    page_table: IntArray  # [groups, rows, pages], of each group of layers
    logit_indices: IntArray  # [logits], indices in the batch of the tokens that need logits
    # [tails, 3]: a group and its page to clear before the step, and how many of the page's first
    # tokens stay.
    stale_tails: IntArray
    # [states], indices in the batch of the tokens whose hidden states are needed themselves.
    hidden_indices: IntArray = field(default_factory=lambda: NO_TOKENS)
    # [taps], the layers that read these hidden states, LAST_NORM for the head.
    taps: IntArray = field(default_factory=lambda: HEAD_ALONE)
    # [rows], of encoders: where in the row its second text begins; 0: nowhere.
    second_at: IntArray = field(default_factory=lambda: NO_TOKENS)
    # [rows, 2 + drafted], of models whose layers keep a state: its slots to read and to write. Of a
    # row with drafts slots for the states behind its tokens before the last follow, else NO_STATE.
    state_slots: IntArray = field(default_factory=lambda: NO_SLOTS)
    # [rows], where a draft head finds the states that it carries over from step to step.
    head_slots: IntArray = field(default_factory=lambda: NO_TOKENS)
    # [rows], the slot of each row's adapters, 0 for none; empty where no row has any.
    adapter_slots: IntArray = field(default_factory=lambda: NO_ADAPTERS)
    # [sampled], indices in the batch of the tokens whose ids the host does not know yet, and these
    # ids, which are on the device.
    sampled_at: IntArray = field(default_factory=lambda: NO_TOKENS)
    sampled_ids: Tensor | None = None
    # [vectors], indices in the batch of the tokens that are parts of media, and on the device what
    # stands in the place of their embeddings: [vectors, hidden].
    vectors_at: IntArray = field(default_factory=lambda: NO_TOKENS)
    vectors: Tensor | None = None
    # Of models that transcribe: what the rows cross-attend to.
    encoder_states: EncoderStates | None = None
    # [tokens], or [3, tokens] where some are parts of images: what the rotary embedding goes by.
    # Empty where it goes by `positions`.
    rotary_positions: IntArray = field(default_factory=lambda: NO_TOKENS)
    # [spans, 4], of tokens that attend to each other both ways: a row, the first and the end of
    # them among the row's new tokens, and whether they do so only in layers with a window.
    spans: IntArray = field(default_factory=lambda: NO_SPANS)
    # Where ranks share the model: the page of each new token [groups, tokens], and on the device
    # [groups, rows, pages] int32, used in place of the page table that rank 0's host alone has.
    new_pages: IntArray = field(default_factory=lambda: NO_PAGES)
    device_table: Tensor | None = None

    def find_new_pages(self, page_size: int) -> IntArray:
        """The page of each new token. [groups, tokens]"""
        rows = np.repeat(np.arange(len(self.new_len)), self.new_len)
        pages: IntArray = self.page_table[:, rows, self.positions // page_size]
        return pages

    def table_shape(self, page_size: int) -> tuple[int, int, int]:
        """Returns groups, rows and pages of a page table that just holds the longest row."""
        n_pages = -(-int(self.total_len.max()) // page_size)
        return len(self.new_pages), len(self.new_len), n_pages

    def table_of(self, group: int) -> IntArray | Tensor:
        """[rows, pages], on the host or on the device."""
        return (self.page_table if self.device_table is None else self.device_table)[group]

    def slots(self, storage: Storage, layer: int) -> IntArray:
        """Slots of a layer for the new tokens. [tokens]"""
        group = storage.group_of[layer]
        if self.device_table is None:
            table = self.page_table[group]
            return token_slots(storage, layer, table, self.total_len, self.new_len)
        return page_slots(storage, layer, self.new_pages[group], self.positions)

    def put_sampled(self, token_ids: Tensor) -> None:
        """Writes the sampled ids to their indices in `token_ids` [tokens]."""
        if self.sampled_ids is None:
            return
        if len(self.sampled_at) == len(token_ids):
            token_ids.copy_(self.sampled_ids)
        else:
            token_ids[to_device(self.sampled_at, token_ids.device)] = self.sampled_ids

    def pack(self) -> IntArray:
        """Packs the columns into one array [numbers], which `unpack` reads.

        The fields in NOT_SENT are left out, the page table and what is on a device among them.
        """
        columns: list[IntArray] = [getattr(self, name) for name in COLUMNS]
        shapes = [number for column in columns for number in (column.ndim, *column.shape)]
        return np.concatenate(
            [np.array(shapes, dtype=np.int64), *(column.ravel() for column in columns)]
        )

    @staticmethod
    def unpack(packed: IntArray) -> "StepInputs":
        """The inputs that `pack` was called on, without what it left out."""
        shapes, at = [], 0
        for _ in COLUMNS:
            first = at + 1
            at = first + int(packed[at])
            shapes.append(packed[first:at].tolist())
        columns: dict[str, Any] = {}
        for name, shape in zip(COLUMNS, shapes, strict=True):
            end = at + prod(shape)
            columns[name] = packed[at:end].reshape(shape)
            at = end
        return StepInputs(page_table=NO_TABLE, **columns)


NOT_SENT = frozenset(
    {
        *("page_table", "device_table", "sampled_ids"),
        *("vectors_at", "vectors", "spans", "encoder_states"),  # of what ranks do not share
    }
)
COLUMNS = tuple(column.name for column in fields(StepInputs) if column.name not in NOT_SENT)
