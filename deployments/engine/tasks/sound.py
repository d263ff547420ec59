"""The sound that a task transcribes, and what its model has made of it."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

# By layer, the keys and values [heads, states, dim] of a sound's encoder states.
CrossKeyValues = Sequence[tuple[Tensor, Tensor]]


@dataclass(slots=True, eq=False)
class Sound:
    """`features` [bands, frames] are for the encoder. `key_values` are of what it has computed,
    while the task runs; tasks with the same sound share them.
    """

    digest: bytes  # of its samples and of the salt of who sent it
    samples: bytes = field(repr=False)
    features: Tensor | None = None
    key_values: CrossKeyValues | None = None
