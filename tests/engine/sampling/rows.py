"""Tasks and rows of logits for sampling strategies, without a model; and plain arithmetic."""

from collections.abc import Sequence
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

from deployments.contract.requests import SamplingParams
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import BaseSamplingStrategy
from deployments.engine.tasks.mailbox import ThreadMailbox
from deployments.engine.tasks.task import Task, make_task
from tests.engine.drive import request

VOCAB = 12
CPU = torch.device("cpu")
Array = NDArray[np.float64]

logit_rows = st.lists(st.floats(-20, 20, width=32), min_size=VOCAB, max_size=VOCAB, unique=True)
token_ids = st.integers(0, VOCAB - 1)
sequences = st.lists(token_ids, max_size=8)


def task_of(
    params: SamplingParams = SamplingParams(),  # noqa: B008  (frozen)
    prompt: Sequence[int] = (0,),
    output: Sequence[int] = (),
    **changes: Any,
) -> Task:
    one = replace(request("r", prompt, params, max_tokens=99, produced_ids=output), **changes)
    return make_task("r", one, ThreadMailbox(0, _nowhere()), frozenset(), 200)


def _nowhere() -> "SimpleQueue[Any]":
    return SimpleQueue()


def applied(strategy: BaseSamplingStrategy, logits: Sequence[float], task: Task) -> Array:
    row = torch.tensor([logits], dtype=torch.float32)
    strategy.apply(row, SamplingRows([task], CPU))
    result: Array = np.asarray(row[0].double().numpy())
    return result


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max())
    return np.asarray(e / e.sum())


def only(x: Array, kept: NDArray[np.bool_]) -> Array:
    return np.where(kept, x, -np.inf)
