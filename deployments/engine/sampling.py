"""Draws one token a row from logits; the draw is a function of (seed, position) alone.

Each strategy touches only the rows that ask for it, so a batch costs what its rows ask for.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.engine.task import Task
from deployments.wire import SamplingParams, TokenLogprob

NEVER = float("-inf")
_64_BITS = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Sample:
    """The token drawn for a row; no token id when its logits were not finite."""

    token_id: int | None
    logprob: TokenLogprob | None = None


class SamplingRows:
    """The tasks whose next tokens are drawn together."""

    def __init__(self, tasks: Sequence[Task], device: torch.device) -> None:
        self.tasks = tasks
        self.params = [task.sampling for task in tasks]
        self.device = device

    def where(self, wants: Callable[[SamplingParams], bool]) -> list[int]:
        return [row for row, params in enumerate(self.params) if wants(params)]

    def column(self, rows: Sequence[int], value: Callable[[SamplingParams], float]) -> Tensor:
        """One parameter of some rows, to be broadcast over the vocabulary. [rows, 1]"""
        values = [value(self.params[row]) for row in rows]
        return torch.tensor(values, dtype=torch.float32, device=self.device)[:, None]


class SamplingStrategy(ABC):
    """Changes logits [rows, vocab] in place."""

    @abstractmethod
    def apply(self, logits: Tensor, rows: SamplingRows) -> None: ...


class LogitBiasStrategy(SamplingStrategy):
    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row in rows.where(lambda p: bool(p.logit_bias)):
            ids, biases = zip(*rows.params[row].logit_bias, strict=True)
            logits[row, list(ids)] += torch.tensor(biases, device=logits.device)


class PenaltyStrategy(SamplingStrategy):
    """Repetition over prompt and output; presence and frequency over the output."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        wanting = rows.where(
            lambda p: (
                p.repetition_penalty != 1 or p.presence_penalty != 0 or p.frequency_penalty != 0
            )
        )
        for row in wanting:
            self._penalise(logits[row], rows.tasks[row])

    def _penalise(self, logits: Tensor, task: Task) -> None:
        params = task.sampling
        counts = _count_output(task, logits)
        if params.repetition_penalty != 1:
            seen = counts > 0
            seen[torch.from_numpy(task.tokens[: task.n_prompt]).to(logits.device)] = True
            scaled = torch.where(
                logits > 0, logits / params.repetition_penalty, logits * params.repetition_penalty
            )
            logits.copy_(torch.where(seen, scaled, logits))
        logits -= params.presence_penalty * (counts > 0) + params.frequency_penalty * counts


def _count_output(task: Task, logits: Tensor) -> Tensor:
    """Occurrences of each token in the output [vocab], brought up to date."""
    if task.token_counts is None:
        task.token_counts = torch.zeros_like(logits)
        task.n_counted = task.n_prompt
    new = torch.from_numpy(task.tokens[task.n_counted : task.n_tokens]).to(logits.device)
    task.token_counts.index_add_(0, new, torch.ones_like(new, dtype=logits.dtype))
    task.n_counted = task.n_tokens
    return task.token_counts


class MinTokensStrategy(SamplingStrategy):
    """No end token before `min_tokens`."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for row, task in enumerate(rows.tasks):
            if task.ends_banned and task.end_token_ids:
                logits[row, list(task.end_token_ids)] = NEVER


class TemperatureStrategy(SamplingStrategy):
    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        wanting = rows.where(lambda p: p.temperature not in (0, 1))
        if wanting:
            # With the highest logit at 0 no temperature, however low, overflows.
            part = logits[wanting]
            part -= part.amax(1, keepdim=True)
            degrees = rows.column(wanting, lambda p: min(max(p.temperature, 1e-30), 1e30))
            logits[wanting] = part / degrees


class TopKStrategy(SamplingStrategy):
    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        vocab = logits.shape[1]
        wanting = rows.where(lambda p: 0 < p.top_k < vocab and p.temperature > 0)
        if wanting:
            k = rows.column(wanting, lambda p: p.top_k).long()
            part = logits[wanting]
            least = part.topk(int(k.max()), dim=1).values.gather(1, k - 1)
            logits[wanting] = part.masked_fill(part < least, NEVER)


class TopPStrategy(SamplingStrategy):
    """The smallest set of most likely tokens whose probabilities reach `top_p`."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        wanting = rows.where(lambda p: p.top_p < 1 and p.temperature > 0)
        if wanting:
            ordered, order = logits[wanting].sort(dim=1, descending=True, stable=True)
            probs = ordered.softmax(1)
            before = probs.cumsum(1) - probs
            beyond = before >= rows.column(wanting, lambda p: p.top_p)
            beyond[:, 0] = False
            kept = ordered.masked_fill(beyond, NEVER)
            logits[wanting] = torch.empty_like(kept).scatter_(1, order, kept)


class MinPStrategy(SamplingStrategy):
    """No token less likely than `min_p` times the most likely one."""

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        wanting = rows.where(lambda p: p.min_p > 0 and p.temperature > 0)
        if wanting:
            part = logits[wanting]
            least = part.amax(1, keepdim=True) + rows.column(wanting, lambda p: p.min_p).log()
            logits[wanting] = part.masked_fill(part < least, NEVER)


class SamplingPipeline(SamplingStrategy):
    """Its strategies one after the other, then a draw."""

    def __init__(self, strategies: Sequence[SamplingStrategy]) -> None:
        self.strategies = strategies

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for strategy in self.strategies:
            strategy.apply(logits, rows)

    def sample(self, logits: Tensor, tasks: Sequence[Task]) -> list[Sample]:
        """One token a task from float32 logits [tasks, vocab], which are overwritten."""
        rows = SamplingRows(tasks, logits.device)
        reported = _report(logits, rows)
        finite = logits.amax(1).isfinite().tolist()  # before a strategy could hide it
        self.apply(logits, rows)
        drawn = _draw(logits, rows).tolist()
        return [
            Sample(token_id, reported(row, token_id)) if finite[row] else Sample(None)
            for row, token_id in enumerate(drawn)
        ]


def default_pipeline() -> SamplingPipeline:
    return SamplingPipeline(
        [
            LogitBiasStrategy(),
            PenaltyStrategy(),
            MinTokensStrategy(),
            TemperatureStrategy(),
            TopKStrategy(),
            TopPStrategy(),
            MinPStrategy(),
        ]
    )


def _draw(logits: Tensor, rows: SamplingRows) -> Tensor:
    """The most likely token of greedy rows; elsewhere the inverse of the distribution. [rows]"""
    drawn = logits.argmax(1)
    random = rows.where(lambda p: p.temperature > 0)
    if random:
        # float64: in float32 a large vocabulary's cumulative sum loses its unlikely tokens.
        cumulative = logits[random].softmax(1).double().cumsum(1)
        seeds = np.array([rows.params[row].seed & _64_BITS for row in random], dtype=np.uint64)
        positions = np.array([rows.tasks[row].n_tokens for row in random], dtype=np.int64)
        u = torch.from_numpy(uniform(seeds, positions)).to(logits.device)
        threshold = u[:, None] * cumulative[:, -1:]
        found = torch.searchsorted(cumulative, threshold, right=True).flatten()
        drawn[random] = found.clamp_(max=logits.shape[1] - 1)
    return drawn


def uniform(seeds: NDArray[np.uint64], positions: NDArray[np.int64]) -> NDArray[np.float64]:
    """One number in [0, 1) for each (seed, position)."""
    mixed = _mix(_mix(seeds) + positions.astype(np.uint64))
    result: NDArray[np.float64] = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return result


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _report(logits: Tensor, rows: SamplingRows) -> Callable[[int, int], TokenLogprob | None]:
    """Looks up logprobs of (row, token drawn) for the rows that asked."""
    wanting = rows.where(lambda p: p.logprobs is not None)
    if not wanting:
        return lambda row, token_id: None
    logprobs = logits[wanting].log_softmax(1)
    most = max(rows.params[row].logprobs or 0 for row in wanting)
    top = logprobs.topk(min(most, logits.shape[1]), dim=1)
    values, ids = top.values.tolist(), top.indices.tolist()
    place = {row: i for i, row in enumerate(wanting)}

    def look_up(row: int, token_id: int) -> TokenLogprob | None:
        if row not in place:
            return None
        i, n = place[row], rows.params[row].logprobs or 0
        alternatives = tuple(zip(ids[i][:n], values[i][:n], strict=True))
        return TokenLogprob(token_id, float(logprobs[i, token_id]), alternatives)

    return look_up
