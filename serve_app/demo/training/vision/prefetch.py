"""Draws the pictures of the next step in a process of its own, while this step is computed."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context

import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from serve_app.demo.model_files import DRAFT
from serve_app.demo.training.batches import ChatBatch
from serve_app.demo.training.vision.batches import blind_chats, packed, shown
from serve_app.demo.training.vision.files import with_picture
from serve_app.demo.training.vision.network import TOWER, Packed

BATCHES = 2  # of a step
NAMED_BATCH = 2  # as many pictures in a batch of which nothing is asked


@dataclass(frozen=True)
class WantedPictures:
    """A step's pictures; nothing else decides what they are."""

    seed: int
    step: int
    is_named: bool  # nothing is asked of them
    batch: int  # pictures


@dataclass(frozen=True)
class Named:
    """Pixels and labels, for the tower alone."""

    batches: list[tuple[Tensor, Tensor]]

    @property
    def pictures(self) -> int:
        return sum(len(pixels) for pixels, _ in self.batches)


@dataclass(frozen=True)
class Asked:
    """Pictures with chats, and chats of which the picture is missing."""

    batches: list[Packed]
    blind: ChatBatch

    @property
    def pictures(self) -> int:
        return sum(len(batch.pixels) for batch in self.batches)


Step = Named | Asked


def drawn(tokenizer: PreTrainedTokenizerFast, wanted: WantedPictures) -> Step:
    name, count = f"{wanted.seed} {wanted.step}", wanted.batch
    if wanted.is_named:
        names = [f"{name} named {at}" for at in range(BATCHES)]
        return Named([shown(TOWER, each, NAMED_BATCH * count) for each in names])
    batches = [packed(tokenizer, TOWER, f"{name} {at}", count) for at in range(BATCHES)]
    return Asked(batches, blind_chats(tokenizer, f"{name} blind"))


@contextmanager
def prefetching() -> Iterator[Callable[[WantedPictures], Future[Step]]]:
    """Yields a function that begins to draw a step's pictures, while the block runs."""
    # Spawned: a fork would have torch's threads without their work.
    with ProcessPoolExecutor(1, get_context("spawn"), torch.set_num_threads, (1,)) as process:
        yield lambda wanted: process.submit(_drawn, wanted)


def _drawn(wanted: WantedPictures) -> Step:
    return drawn(_tokenizer(), wanted)


@cache
def _tokenizer() -> PreTrainedTokenizerFast:
    return with_picture(AutoTokenizer.from_pretrained(DRAFT))
