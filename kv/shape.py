"""The sizes of a paged KV cache."""

from dataclasses import dataclass
from functools import cached_property

import torch

from kv.layout import Group, Layout, group_layers
from kv.states import SLOTS_PER_TASK
from kv.storage import Storage


@dataclass(frozen=True, kw_only=True)
class CacheShape:
    """Sizes of a cache.

    layout: what each layer stores of a token. No window is as long as `max_tokens`.
    page_size: tokens of a page, which holds one group of layers.
    max_tasks: sequences that have pages at once.
    max_tokens: of the longest sequence, prompt and output.
    max_new_tokens: that one step computes of a sequence; 0: as many as it has.
    has_states: some layers keep a state in the place of keys. A prefix can be shared where its
        state was kept as a checkpoint.
    max_checkpoints: such states, each of `state_bytes`.
    max_drafted: drafted tokens of a step, each with a state of its own.
    is_fp8: keys and values are stored in one byte each (e4m3), whatever the model computes with.
    """

    layout: Layout
    n_pages: int
    page_size: int
    max_tasks: int
    max_tokens: int
    max_new_tokens: int = 0
    is_fp8: bool = False
    has_states: bool = False
    max_checkpoints: int = 0
    max_drafted: int = 0
    state_bytes: int = 0

    def __post_init__(self) -> None:
        """Raises ValueError where a window that tumbles would begin within a page."""
        for group in self.groups:
            if group.is_tumbling and group.window is not None and group.window % self.page_size:
                raise ValueError(
                    f"page_size: windows of {group.window} tokens that lie side by side are no "
                    f"whole pages of {self.page_size}"
                )

    @property
    def n_state_slots(self) -> int:
        """Slots of states, of all tasks, drafts and checkpoints; 0: layers keep none."""
        if not self.has_states:
            return 0
        return SLOTS_PER_TASK * self.max_tasks + self.max_checkpoints + self.max_drafted

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The groups of layers, each with a page table."""
        return group_layers(self.layout)

    @cached_property
    def max_pages_per_group(self) -> tuple[int | None, ...]:
        """The most pages that a sequence holds at once in each group; None: all of its pages."""
        new = self.max_new_tokens or self.max_tokens
        return tuple(
            None if group.window is None else self.pages_for(group.window - 1 + new) + 1
            for group in self.groups
        )

    def storage_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The type of stored keys and values, for a model that computes with `dtype`."""
        return torch.float8_e4m3fn if self.is_fp8 else dtype

    def storage(self, dtype: torch.dtype, device: torch.device | str) -> Storage:
        """New memory of this shape, for a model that computes with `dtype`."""
        stored = self.storage_dtype(dtype)
        return Storage(self.layout, self.n_pages, self.page_size, dtype=stored, device=device)

    def page_bytes(self, dtype: torch.dtype) -> int:
        """Bytes of one page, for a model that computes with `dtype`."""
        return Storage.page_bytes(self.layout, self.page_size, self.storage_dtype(dtype))

    def pages_for(self, n_tokens: int) -> int:
        """Pages of `n_tokens` tokens in one group."""
        return -(-n_tokens // self.page_size)

    def max_pages_of(self, n_tokens: int) -> int:
        """The most pages that a sequence of `n_tokens` tokens holds at once, in all groups."""
        n = self.pages_for(n_tokens)
        return sum(n if most is None else min(n, most) for most in self.max_pages_per_group)

    def longest(self, n_pages: int) -> int:
        """Tokens of the longest sequence that `n_pages` pages hold; at most `max_tokens`."""
        low, high = 0, self.pages_for(self.max_tokens)  # in pages of a group
        while low < high:
            middle = (low + high + 1) // 2
            fits = self.max_pages_of(middle * self.page_size) <= n_pages
            low, high = (middle, high) if fits else (low, middle - 1)
        return min(self.max_tokens, low * self.page_size)
