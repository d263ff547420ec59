"""Batches of pictures with their chats, a function of (seed, step) alone.

A process of its own draws those of the next step, while this step is computed.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context

import numpy
import torch
from PIL import Image
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from serve_app.demo.model_files import DRAFT
from serve_app.demo.training.batches import ChatBatch, Row, batch_of
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.subjects.roles import usual
from serve_app.demo.training.tokenizer import encoded
from serve_app.demo.training.vision.corpus import IMAGE, Lesson, blind, lesson
from serve_app.demo.training.vision.drawing import labels
from serve_app.demo.training.vision.files import with_picture
from serve_app.demo.training.vision.network import MEAN, STD, TOWER, Packed, TowerShape

PICTURES = 16  # of a batch
CHATS, LONG_CHATS = 5, 2  # of a picture: with one question each, with two or three
TOKENS = 32  # of a chat with one question; few are longer, and lose their ends: padding is dear
LONG = 0.2  # share of batches with long chats
BATCHES = 2  # of a step
NAMED_BATCH = 2  # as many pictures in a batch of which nothing is asked
BLIND = 4  # chats without a picture, of a step


def pixels(picture: Image.Image, side: int) -> Tensor:
    """[channels, side, side], normalized as the model's processor does it"""
    small = picture.resize((side, side), Image.Resampling.BICUBIC)
    scaled = torch.from_numpy(numpy.array(small)).permute(2, 0, 1) / 255
    return (scaled - MEAN) / STD


def packed(
    tokenizer: PreTrainedTokenizerFast, shape: TowerShape, seed: str, pictures: int = PICTURES
) -> Packed:
    chance = SeededDraw(seed)
    is_long, system = chance.chance(LONG), usual(chance)
    chats, exchanges = (LONG_CHATS, (2, 3)) if is_long else (CHATS, (1, 1))
    lessons = [lesson(f"{seed} {at}", chats, exchanges, system) for at in range(pictures)]
    begin, ids, targets = _rows(tokenizer, lessons)
    kept = slice(None if is_long else TOKENS)
    return Packed(*_seen(shape, lessons), begin, ids[..., kept], targets[..., kept])


def shown(shape: TowerShape, seed: str, count: int) -> Packed:
    """Pictures of which nothing is asked."""
    nothing = torch.empty(0, dtype=torch.long)
    lessons = [lesson(f"{seed} {at}", 0) for at in range(count)]
    return Packed(*_seen(shape, lessons), nothing, nothing, nothing)


def blind_chats(tokenizer: PreTrainedTokenizerFast, seed: str) -> ChatBatch:
    draw = SeededDraw(seed)
    return batch_of(encoded(tokenizer, [blind(draw) for _ in range(BLIND)]))


def _seen(shape: TowerShape, lessons: list[Lesson]) -> tuple[Tensor, Tensor]:
    found = torch.stack([pixels(each.picture, shape.side) for each in lessons])
    return found, torch.stack([labels(each.scene, shape.grid) for each in lessons])


def _rows(
    tokenizer: PreTrainedTokenizerFast, lessons: list[Lesson]
) -> tuple[Tensor, Tensor, Tensor]:
    """Ids before the pictures, and ids and targets of each chat behind its picture."""
    chats = [chat for each in lessons for chat in each.conversations()]
    rows, mark = encoded(tokenizer, chats), tokenizer.convert_tokens_to_ids(IMAGE)
    at = rows[0][0].index(mark)
    behind: list[Row] = [(ids[at + 1 :], mask[at + 1 :]) for ids, mask in rows]
    batch = batch_of(behind)
    size = (len(lessons), -1, batch.ids.shape[1])
    return torch.tensor(rows[0][0][:at]), batch.ids.view(size), batch.targets.view(size)


@dataclass(frozen=True)
class PictureStep:
    """Pictures of a step with their chats, and chats of which the picture is missing."""

    batches: list[Packed]
    blind: ChatBatch | None  # None where nothing is asked: such pictures are for the tower alone

    @property
    def pictures(self) -> int:
        return sum(len(batch.pixels) for batch in self.batches)


def drawn(
    tokenizer: PreTrainedTokenizerFast, seed: int, step: int, is_asked: bool, count: int = PICTURES
) -> PictureStep:
    """Draws a step's pictures, so many for each batch; nothing else decides what they are."""
    name = f"{seed} {step}"
    if not is_asked:
        names = [f"{name} named {at}" for at in range(BATCHES)]
        return PictureStep([shown(TOWER, each, NAMED_BATCH * count) for each in names], None)
    batches = [packed(tokenizer, TOWER, f"{name} {at}", count) for at in range(BATCHES)]
    return PictureStep(batches, blind_chats(tokenizer, f"{name} blind"))


@contextmanager
def prefetching(seed: int) -> Iterator[Callable[[int, bool], Future[PictureStep]]]:
    """Yields a function that begins to draw a step's pictures, while the block runs."""
    # Spawned: a fork would have torch's threads without their work.
    with ProcessPoolExecutor(1, get_context("spawn"), torch.set_num_threads, (1,)) as process:
        yield lambda step, is_asked: process.submit(_drawn, seed, step, is_asked)


def _drawn(seed: int, step: int, is_asked: bool) -> PictureStep:
    return drawn(_tokenizer(), seed, step, is_asked)


@cache
def _tokenizer() -> PreTrainedTokenizerFast:
    return with_picture(AutoTokenizer.from_pretrained(DRAFT))
