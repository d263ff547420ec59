"""Samples one token a row from logits. Chance is a function of (seed, position, token id) alone.

Each strategy touches only the rows that ask for it, so a batch costs what its rows ask for.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.contract.events import TokenLogprob
from deployments.contract.requests import GenerationRequest
from deployments.engine.sampling.bans import BadWordsStrategy, LogitBiasStrategy, MinTokensStrategy
from deployments.engine.sampling.constraints import ThinkingStrategy, TranscriptStrategy
from deployments.engine.sampling.draw import draw
from deployments.engine.sampling.logprobs import PendingLogprobs, draw_logprobs, model_logprobs
from deployments.engine.sampling.mirostat import MirostatStrategy, PendingSurprises
from deployments.engine.sampling.penalties import DryStrategy, PenaltyStrategy
from deployments.engine.sampling.rows import GroupCache, SamplingRows
from deployments.engine.sampling.strategy import BaseSamplingStrategy
from deployments.engine.sampling.temperature import TemperatureStrategy
from deployments.engine.sampling.truncation import (
    MinPStrategy,
    TopKStrategy,
    TopNSigmaStrategy,
    TopPStrategy,
    TypicalStrategy,
    XtcStrategy,
)
from deployments.engine.tasks.mailbox import NullMailbox
from deployments.engine.tasks.task import Task, make_task
from deployments.engine.transfer import Readback

# By llama-server's names, in our order.
SAMPLERS: Mapping[str, BaseSamplingStrategy] = {
    "penalties": PenaltyStrategy(),
    "dry": DryStrategy(),
    "temperature": TemperatureStrategy(),
    "top_n_sigma": TopNSigmaStrategy(),
    "top_k": TopKStrategy(),
    "typ_p": TypicalStrategy(),
    "top_p": TopPStrategy(),
    "min_p": MinPStrategy(),
    "xtc": XtcStrategy(),
}


@dataclass(slots=True)
class Sample:
    """The token sampled for a row; None when the model's logits were not finite, or when
    `is_all_banned`: they were, and strategies have banned every token.

    mirostat_mu: Mirostat's state after this token, in bits; None for rows without Mirostat.
    """

    token_id: int | None
    logprob: TokenLogprob | None = None
    mirostat_mu: float | None = None
    is_all_banned: bool = False


@dataclass(frozen=True, slots=True)
class PendingSamples:
    """Tokens that a GPU may be sampling still."""

    rows: SamplingRows
    surprises: PendingSurprises
    logprobs: Sequence[PendingLogprobs]
    token_ids: Tensor  # [rows], without meaning where no token could be sampled
    readback: (
        Readback  # token ids, and the largest logit of each row: the model's, and what is left
    )

    def result(self) -> list[Sample]:
        """Waits for the samples, one a row."""
        (found, given, left), rows = self.readback.tolist(), self.rows
        ids = [
            int(token_id) if isfinite(largest) and isfinite(largest_left) else None
            for token_id, largest, largest_left in zip(found, given, left, strict=True)
        ]
        if not rows.has_non_default("mirostat", "logprobs") and None not in ids:
            return [Sample(token_id) for token_id in ids]
        self.surprises.observe(ids)
        logprobs: dict[int, TokenLogprob] = {}
        for pending in self.logprobs:
            logprobs |= pending.result(ids)
        return [
            Sample(None, is_all_banned=isfinite(given[row]))
            if token_id is None
            else Sample(token_id, logprobs.get(row), rows.tasks[row].sampling_state.mirostat_mu)
            for row, token_id in enumerate(ids)
        ]


class OrderedStrategy(BaseSamplingStrategy):
    """Applies samplers in the order that each row asks for."""

    def __init__(self, samplers: Mapping[str, BaseSamplingStrategy]) -> None:
        self.samplers = samplers

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for order, ordered in self._by_order(rows):
            for name in order or self.samplers:
                self.samplers[name].apply(logits, ordered)

    def _by_order(self, rows: SamplingRows) -> Iterable[tuple[tuple[str, ...], SamplingRows]]:
        if not rows.has_non_default("samplers"):
            return [((), rows)]
        by_order: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for row in rows.selected:
            by_order[rows.params[row].samplers].append(row)
        return [(order, rows.select(selected)) for order, selected in by_order.items()]


class SamplingPipeline(BaseSamplingStrategy):
    """Applies its strategies one after the other, then samples from what they leave.

    One thread uses it: it keeps what it has looked up for the rows of the last step.
    """

    def __init__(self, strategies: Sequence[BaseSamplingStrategy]) -> None:
        self.strategies = strategies
        self._previous: GroupCache | None = None

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for strategy in self.strategies:
            strategy.apply(logits, rows)

    def sample(self, logits: Tensor, tasks: Sequence[Task]) -> list[Sample]:
        """One token a task from float32 logits [tasks, vocab], which are overwritten."""
        return self.launch(logits, tasks).result()

    def launch(
        self,
        logits: Tensor,
        tasks: Sequence[Task],
        n_ahead: NDArray[np.int64] | None = None,
        newest_ids: Tensor | None = None,
    ) -> PendingSamples:
        """Like `sample`, without waiting for the device.

        `n_ahead` [tasks]: so many tokens stand between a task's last known token and the sampled
        one: drafted ones, for tasks that `can_draft`; or one at most, for tasks that
        `can_sample_ahead`, where `newest_ids` [tasks] has these on the device, and -1 for others.
        """
        rows = SamplingRows(tasks, logits.device, self._previous, n_ahead, newest_ids)
        self._previous = rows.cache
        own = model_logprobs(logits, rows)
        given = logits.amax(1) if _may_ban(rows) else None  # a ban could hide what is not finite
        self.apply(logits, rows)
        token_ids, left = draw(logits, rows)
        readback = Readback(token_ids, left if given is None else given, left)
        own.read(token_ids)
        surprises = PendingSurprises(logits, rows, token_ids)
        drawn = draw_logprobs(logits, rows)
        drawn.read(token_ids)
        return PendingSamples(rows, surprises, (own, drawn), token_ids, readback)

    def guess(self, logits: Tensor, tasks: Sequence[Task], n_ahead: NDArray[np.int64]) -> Tensor:
        """The tokens [tasks] that `launch` would sample from these logits, by the same noise, where
        constraints don't mask them."""
        rows = SamplingRows(tasks, logits.device, self._previous, n_ahead, is_guess=True)
        self._previous = rows.cache
        self.apply(logits, rows)
        return draw(logits, rows)[0]


# Fields whose strategies leave every finite logit finite.
BANNING_NOTHING = ("temperature", "seed", "logprobs", "sampled_logprobs")


def _may_ban(rows: SamplingRows) -> bool:
    """Whether strategies may ban tokens. They could hide logits that are not finite."""
    return rows.has_non_default_except(*BANNING_NOTHING) or any(
        task.request.min_tokens or task.request.thinking or task.constraint.is_masking
        for task in rows.tasks
    )


def default_pipeline(*masks: BaseSamplingStrategy) -> SamplingPipeline:
    """All strategies in their order. `masks` ban tokens and come after every other ban."""
    return SamplingPipeline(
        [
            LogitBiasStrategy(),
            BadWordsStrategy(),
            MinTokensStrategy(),
            TranscriptStrategy(),
            *masks,
            OrderedStrategy(SAMPLERS),
            MirostatStrategy(),
            ThinkingStrategy(),
        ]
    )


def sample(logits: Tensor, requests: Sequence[GenerationRequest]) -> list[Sample]:
    """One token for each request from logits [requests, vocab], in one shot and without an engine.

    The token follows the request's prompt and what was produced already. Any dtype; the logits are
    not changed. Grammars are not applied: they need a tokenizer.
    """
    tasks = [_task_for(request) for request in requests]
    return default_pipeline().sample(logits.to(torch.float32, copy=True), tasks)


def _task_for(request: GenerationRequest) -> Task:
    n_tokens = len(request.prompt_ids) + len(request.produced_ids)
    return make_task(request.request_id, request, NullMailbox(), frozenset(), n_tokens + 1)
