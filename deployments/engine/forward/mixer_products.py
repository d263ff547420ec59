"""The products of a mixer that read its input or make its result.

They need no state. So they are computed of all tokens of a step at once, where the mixer itself is
called for one part of the tokens after the other: its weights are read once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn

from deployments.engine.forward.overriding import override

Product = Callable[[Tensor], Tensor]  # [..., in] -> [..., out]


class Part(NamedTuple):
    """Some tokens of a step, as a mixer is given them: `shape` is rows and tokens of each."""

    tokens: slice | Tensor
    shape: tuple[int, int]


class MixerProducts:
    """The products of one mixer, which are this object's while it lives."""

    def __init__(self, mixer: nn.Module, mix: Product, tried: Tensor) -> None:
        """`tried` [1, tokens, hidden] is what it is tried with."""
        first, last = _find(mixer, mix, tried)
        self._first = {child: _plain(child) for child in first}
        self._last = None if last is None else _plain(last)
        self._part: Part | None = None
        self._given: dict[nn.Module, Tensor] = {}
        self._taken: dict[nn.Module, int] = {}  # tokens of the part
        self._left: list[Tensor] = []
        for child in first:
            override(child, "forward", self._of_input(child))
        if last is not None:
            override(last, "forward", self._of_result(last))

    @contextmanager
    def of_all(self, hidden: Tensor) -> Iterator[None]:
        """Within, the mixer can be called for parts of hidden [1, tokens, hidden]."""
        self._given = {child: product(hidden)[0] for child, product in self._first.items()}
        try:
            yield
        finally:
            self._given = {}

    def part(self, part: Part, mix: Callable[[], Tensor]) -> Tensor:
        """Returns what the mixer makes of a part, at once or of its first tokens before its others,
        up to its last product. [rows * tokens, width]"""
        self._part, self._taken, self._left = part, dict.fromkeys(self._first, 0), []
        try:
            mixed = mix()
        finally:
            self._part = None
        return (mixed if self._last is None else torch.cat(self._left, 1)).flatten(0, 1)

    def result(self, x: Tensor) -> Tensor:
        """[1, tokens, width] -> [1, tokens, hidden]"""
        return x if self._last is None else self._last(x)

    def _of_input(self, child: nn.Module) -> Product:
        def product(x: Tensor) -> Tensor:
            if self._part is None:
                return self._first[child](x)
            begin = self._taken[child]
            end = self._taken[child] = begin + x.shape[1]
            of_part = self._given[child][self._part.tokens].view(*self._part.shape, -1)
            return of_part[:, begin:end]

        return product

    def _of_result(self, child: nn.Module) -> Product:
        plain = _plain(child)

        def product(x: Tensor) -> Tensor:
            if self._part is None:
                return plain(x)
            self._left.append(x)
            return x

        return product


def _plain(child: nn.Module) -> Product:
    found: Product = type(child).forward.__get__(child)
    return found


@torch.inference_mode()
def _find(
    mixer: nn.Module, mix: Product, tried: Tensor
) -> tuple[Sequence[nn.Module], nn.Module | None]:
    """The layers that read a mixer's input, and the one that returns its result, if it is one."""
    first, last = list[nn.Module](), dict[int, nn.Module]()

    def note(child: nn.Module, inputs: tuple[Tensor, ...], out: Tensor) -> None:
        if inputs[0].data_ptr() == tried.data_ptr() and inputs[0].shape == tried.shape:
            first.append(child)
        last[out.data_ptr()] = child

    usual = [child for child in mixer.children() if not child._forward_hooks]
    with ExitStack() as hooks:
        for child in usual:
            if isinstance(child, nn.Linear) or hasattr(child, "out_features"):
                hooks.callback(child.register_forward_hook(note).remove)
        mixed = mix(tried)
    return first, last.get(mixed.data_ptr())
