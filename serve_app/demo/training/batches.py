"""Batches of chats of like length, a function of (seed, step) alone.

A row holds one chat, so that none sees another, and the rows of a batch are of like length, so
that there is little padding. A step reads several batches: short chats and long ones together.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from random import Random

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from serve_app.demo.training.corpus import chats
from serve_app.demo.training.corpus.skills import EARLY
from serve_app.demo.training.tokenizer import encoded

MAX_TOKENS = 1024  # of one chat
STEPS_A_POOL = 32
IGNORED = -100

Row = tuple[list[int], list[int]]


@dataclass(frozen=True)
class ChatBatch:
    ids: Tensor  # [rows, tokens]
    targets: Tensor  # [rows, tokens], IGNORED where the loss does not look
    tokens: int  # without padding
    counted: int  # targets that count


def steps(
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    start: int,
    tokens_a_batch: int,
    batches: int,
    shares: Mapping[str, float] = EARLY,
) -> Iterator[list[ChatBatch]]:
    """Endless steps from number `start` on, each of `batches` batches, padding included.

    `shares` say of which skills.
    """
    pool, skip = divmod(start, STEPS_A_POOL)
    while True:
        count = batches * STEPS_A_POOL
        drawn = _pool(tokenizer, f"{seed} pool {pool}", shares, tokens_a_batch, count)
        for step in range(skip, STEPS_A_POOL):
            yield [batch_of(rows) for rows in drawn[step * batches : (step + 1) * batches]]
        pool, skip = pool + 1, 0


def _pool(
    tokenizer: PreTrainedTokenizerFast,
    seed: str,
    shares: Mapping[str, float],
    tokens_a_batch: int,
    count: int,
) -> list[list[Row]]:
    """`count` groups of rows; sorting a whole pool by length leaves little padding."""
    source, groups, rows = chats(seed, shares), list[list[Row]](), list[Row]()
    while len(groups) < count:
        drawn = encoded(tokenizer, list(islice(source, 256)))
        rows += [row for row in drawn if len(row[0]) <= MAX_TOKENS]
        if sum(len(row[0]) for row in rows) >= 0.97 * count * tokens_a_batch:
            groups = _grouped(sorted(rows, key=lambda row: len(row[0])), tokens_a_batch)
    Random(seed).shuffle(groups)
    return groups[:count]


def _grouped(rows: list[Row], tokens_a_batch: int) -> list[list[Row]]:
    groups: list[list[Row]] = [[]]
    for row in rows:
        if groups[-1] and (len(groups[-1]) + 1) * _width(row) > tokens_a_batch:
            groups.append([])
        groups[-1].append(row)
    return groups


def _width(row: Row) -> int:
    """Rounded up: kernels are prepared for few shapes, and reused."""
    return -(-len(row[0]) // 8) * 8


def batch_of(rows: list[Row]) -> ChatBatch:
    width = max(map(_width, rows))
    ids = torch.zeros(len(rows), width, dtype=torch.long)
    targets = torch.full((len(rows), width), IGNORED)
    for at, (row, mask) in enumerate(rows):
        ids[at, : len(row)] = torch.tensor(row)
        following = [i if m else IGNORED for i, m in zip(row[1:], mask[1:], strict=True)]
        targets[at, : len(following)] = torch.tensor(following)
    counted = int((targets != IGNORED).sum())
    return ChatBatch(ids, targets, sum(len(row) for row, _ in rows), counted)
