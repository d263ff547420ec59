"""Batches of pictures with their chats, a function of (seed, step) alone."""

import numpy
import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from serve_app.demo.training.batches import ChatBatch, Row, batch_of
from serve_app.demo.training.corpus.split import SeededDraw
from serve_app.demo.training.corpus.subjects.roles import usual
from serve_app.demo.training.tokenizer import encoded
from serve_app.demo.training.vision.corpus import IMAGE, Lesson, blind, lesson
from serve_app.demo.training.vision.labels import labels
from serve_app.demo.training.vision.network import Packed
from serve_app.demo.training.vision.tower import TowerShape

MEAN = STD = 0.5  # of pixels from 0 to 1
PICTURES = 16  # of a batch
CHATS, LONG_CHATS = 5, 2  # of a picture: with one question each, with two or three
TOKENS = 32  # of a chat with one question; few are longer, and lose their ends: padding is dear
LONG = 0.2  # share of batches with long chats
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


def shown(shape: TowerShape, seed: str, count: int) -> tuple[Tensor, Tensor]:
    """Pixels and labels of pictures of which nothing is asked."""
    return _seen(shape, [lesson(f"{seed} {at}", 0) for at in range(count)])


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
