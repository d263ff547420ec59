"""The layout of a cache: what layers store of a token, and which layers share a sequence's pages.

Layers may differ in what they store and in how long they need it. Those of one group keep their
keys as long as each other: a page of a group holds some tokens of all of its layers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import lcm
from typing import NamedTuple

MAX_GROUPS = 8  # each has a page table in every step


class LayerShape(NamedTuple):
    """Keys and values of one layer, each [kv_heads, head_dim] for a token. `NOTHING` is of a layer
    that does not attend.

    window: tokens that a token attends to, itself included; None: all.
    is_tumbling: windows do not slide, but lie side by side: a token attends to those before it in
        its own one.
    value_dim: a head's value is the first so many numbers of its key, as of latents, and is not
        stored by itself; None: it is stored beside the key.
    """

    kv_heads: int
    head_dim: int
    window: int | None = None
    value_dim: int | None = None
    is_tumbling: bool = False

    @property
    def key_numbers(self) -> int:
        """Numbers stored of one token's keys, and of its values if these are stored."""
        return self.kv_heads * self.head_dim

    @property
    def token_numbers(self) -> int:
        """Numbers stored of one token, keys and values."""
        return self.key_numbers if self.has_values_in_keys else 2 * self.key_numbers

    @property
    def has_values_in_keys(self) -> bool:
        return self.value_dim is not None


NOTHING = LayerShape(0, 0)
Layout = tuple[LayerShape, ...]  # of each layer


@dataclass(frozen=True, slots=True)
class Group:
    """Layers whose tokens share pages, in order. A token is needed while it is in their window."""

    layers: tuple[int, ...]
    window: int | None = None
    is_tumbling: bool = False

    def first_needed(self, n_tokens: int) -> int:
        """The first of a sequence's `n_tokens` tokens that the next token attends to."""
        if self.window is None:
            return 0
        # A task always holds its last page.
        if self.is_tumbling:
            return max(0, min(n_tokens // self.window * self.window, n_tokens - 1))
        return max(0, n_tokens - max(self.window, 2) + 1)

    def numbers(self, layout: Layout) -> int:
        """Numbers stored of one token."""
        return sum(layout[layer].token_numbers for layer in self.layers)


def alike(n_layers: int, kv_heads: int, head_dim: int) -> Layout:
    """Returns the layout of layers that do not differ."""
    return (LayerShape(kv_heads, head_dim),) * n_layers


def within(layout: Layout, max_tokens: int) -> Layout:
    """The same without windows that no sequence of `max_tokens` tokens fills."""
    return tuple(
        shape._replace(window=None, is_tumbling=False)
        if (shape.window or 0) >= max_tokens
        else shape
        for shape in layout
    )


def group_layers(layout: Layout) -> tuple[Group, ...]:
    """Groups of nearly equal size, so that all can have pages of one pool. Those that keep all
    tokens are first.

    Of the sizes that make at most MAX_GROUPS groups, the one that leaves the least of a page empty.
    """
    attending = [layer for layer, shape in enumerate(layout) if shape.token_numbers]
    windows = {_window(layout[layer]) for layer in attending} or {(None, False)}
    ordered = sorted(windows, key=lambda window: (window[0] is not None, window[0] or 0, window[1]))
    kinds = [[n for n in attending if _window(layout[n]) == window] for window in ordered]
    if len(kinds) == 1:
        return (Group(tuple(attending), *ordered[0]),)

    def packed(size: int) -> tuple[Group, ...]:
        return tuple(
            Group(layers, *window)
            for layers_of_kind, window in zip(kinds, ordered, strict=True)
            for layers in _pack(layout, layers_of_kind, size)
        )

    def cost(groups: Sequence[Group]) -> tuple[bool, int, int]:
        sizes = [group.numbers(layout) for group in groups]
        return len(groups) > MAX_GROUPS, max(sizes) * len(sizes) - sum(sizes), len(groups)

    return min((packed(size) for size in {*_sizes(layout, kinds)}), key=cost)


def _window(shape: LayerShape) -> tuple[int | None, bool]:
    return shape.window, shape.is_tumbling


def page_numbers(layout: Layout, groups: Iterable[Group], page_size: int) -> int:
    """Numbers of a page of `page_size` tokens, which has room for the largest group. A multiple of
    each layer's `key_numbers`."""
    multiple = lcm(*(shape.key_numbers for shape in layout if shape.key_numbers))
    largest = page_size * max(group.numbers(layout) for group in groups)
    return -(-largest // multiple) * multiple


def _sizes(layout: Layout, kinds: Sequence[Sequence[int]]) -> Iterable[int]:
    """The sizes of the first layers of each kind."""
    for layers in kinds:
        size = 0
        for layer in layers:
            size += layout[layer].token_numbers
            yield size


def _pack(layout: Layout, layers: Iterable[int], size: int) -> list[tuple[int, ...]]:
    """Layers in order, in groups of at most `size` numbers a token, or of one layer."""
    groups: list[tuple[int, ...]] = []
    room = 0
    for layer in layers:
        numbers = layout[layer].token_numbers
        if not groups or numbers > room:
            groups.append(())
            room = size
        groups[-1] += (layer,)
        room -= numbers
    return groups
