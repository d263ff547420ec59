"""Draws one token a row from logits; the draw is a function of (seed, position) alone.

Each strategy touches only the rows that ask for it, so a batch costs what its rows ask for.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deployments.engine.sampling import mirostat
from deployments.engine.sampling.bans import BadWordsStrategy, LogitBiasStrategy, MinTokensStrategy
from deployments.engine.sampling.dry import DryStrategy
from deployments.engine.sampling.logprobs import Logprobs, of_the_draw, of_the_model
from deployments.engine.sampling.mirostat import MirostatStrategy
from deployments.engine.sampling.penalties import PenaltyStrategy
from deployments.engine.sampling.rows import SamplingRows
from deployments.engine.sampling.strategy import SamplingStrategy
from deployments.engine.sampling.temperature import TemperatureStrategy
from deployments.engine.sampling.thinking_budget import ThinkingStrategy
from deployments.engine.sampling.truncation import (
    MinPStrategy,
    TopKStrategy,
    TopNSigmaStrategy,
    TopPStrategy,
    TypicalStrategy,
    XtcStrategy,
)
from deployments.engine.tasks.task import Task
from deployments.engine.transfer import Readback, to_device
from deployments.wire import SamplingParams, TokenLogprob

BLOCK = 128  # tokens whose probabilities are summed in float32
# By llama-server's names, in our order.
SAMPLERS: Mapping[str, SamplingStrategy] = {
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
    """The token drawn for a row; none when the model's logits were not finite, or when they were
    and `all_banned` says that nothing was left to draw."""

    token_id: int | None
    logprob: TokenLogprob | None = None
    mirostat_mu: float | None = None
    all_banned: bool = False


@dataclass(frozen=True, slots=True)
class Draw:
    """Tokens that are drawn on the device, now or later."""

    rows: SamplingRows
    logits: Tensor | None  # [rows, vocab], as the strategies left them, where they are looked at
    own: Logprobs
    token_ids: Tensor  # [rows], of no meaning where none could be drawn
    facts: Readback  # [3, rows]: token ids, whether the model's logits were finite, are any left

    def samples(self) -> list[Sample]:
        """Waits for them."""
        facts, rows = self.facts.tolist(), self.rows
        ids = [id_ if a and b else None for id_, a, b in zip(*facts, strict=True)]
        if self.logits is None and None not in ids:
            return [Sample(token_id) for token_id in ids]
        logprobs: dict[int, TokenLogprob] = {}
        if self.logits is not None:
            mirostat.observe(self.logits, rows, ids)
            logprobs = self.own.of(ids) | of_the_draw(self.logits, rows).of(ids)
        return [
            Sample(None, all_banned=bool(facts[1][row]))
            if token_id is None
            else Sample(token_id, logprobs.get(row), rows.tasks[row].mirostat_mu)
            for row, token_id in enumerate(ids)
        ]


class OrderedStrategy(SamplingStrategy):
    """The samplers in the order that each row asks for."""

    def __init__(self, samplers: Mapping[str, SamplingStrategy]) -> None:
        self.samplers = samplers

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for order, some in self._by_order(rows):
            for name in order or self.samplers:
                self.samplers[name].apply(logits, some)

    def _by_order(self, rows: SamplingRows) -> Iterable[tuple[tuple[str, ...], SamplingRows]]:
        if not rows.changed("samplers"):
            return [((), rows)]
        by_order: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for row in rows.chosen:
            by_order[rows.params[row].samplers].append(row)
        return [(order, rows.only(chosen)) for order, chosen in by_order.items()]


class SamplingPipeline(SamplingStrategy):
    """Its strategies one after the other, then a draw."""

    def __init__(self, strategies: Sequence[SamplingStrategy]) -> None:
        self.strategies = strategies
        self._before: SamplingRows | None = None

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for strategy in self.strategies:
            strategy.apply(logits, rows)

    def sample(self, logits: Tensor, tasks: Sequence[Task]) -> list[Sample]:
        """One token a task from float32 logits [tasks, vocab], which are overwritten."""
        return self.draw(logits, tasks).samples()

    def draw(
        self, logits: Tensor, tasks: Sequence[Task], ahead: NDArray[np.int64] | None = None
    ) -> "Draw":
        """The same, without waiting for it. Of blind tasks (`is_blind`) the token may be so far
        `ahead` of the next one. [tasks]"""
        rows = SamplingRows(tasks, logits.device, self._before, ahead)
        self._before = rows.without_tasks()
        own = of_the_model(logits, rows)
        finite = logits.amax(1).isfinite() if _bans(rows) else None  # before one could hide it
        self.apply(logits, rows)
        drawn, allowed = _draw(logits, rows)
        facts = torch.stack([drawn, allowed if finite is None else finite, allowed])
        kept = logits if rows.changed("mirostat", "logprobs") else None
        return Draw(rows, kept, own, drawn, Readback(facts))


# What leaves every finite logit finite.
HARMLESS = ("temperature", "seed", "logprobs", "sampled_logprobs")


def _bans(rows: SamplingRows) -> bool:
    """Whether anything may be banned, so that what the model said can't be seen any more."""
    return rows.changed_but(*HARMLESS) or any(
        task.request.min_tokens or task.request.thinking or task.grammar for task in rows.tasks
    )


def default_pipeline(*masks: SamplingStrategy) -> SamplingPipeline:
    """All strategies; `masks` ban tokens and come after every other ban."""
    return SamplingPipeline(
        [
            LogitBiasStrategy(),
            BadWordsStrategy(),
            MinTokensStrategy(),
            *masks,
            OrderedStrategy(SAMPLERS),
            MirostatStrategy(),
            ThinkingStrategy(),
        ]
    )


def _draw(logits: Tensor, rows: SamplingRows) -> tuple[Tensor, Tensor]:
    """The most likely token of greedy rows, elsewhere the inverse of the distribution; and whether
    a row has a token that may be drawn. [rows], [rows]"""
    greatest, drawn = _greatest(logits)
    asking = rows.asking(_is_random)
    if asking:
        u = to_device(rows.uniform(asking), logits.device)
        asking.put(drawn, invert(asking.take(logits), u))
    return drawn, greatest.isfinite()


def _is_random(params: SamplingParams) -> bool:
    return params.temperature > 0


def _greatest(logits: Tensor) -> tuple[Tensor, Tensor]:
    if logits.is_cuda:
        return logits.max(1)
    # Together a third of what torch takes for both at once.
    return logits.amax(1), torch.from_numpy(logits.numpy().argmax(1))


def invert(logits: Tensor, u: Tensor) -> Tensor:
    """The token of each row at which the sum of the probabilities passes u, in the order of ids.

    Found block by block: in float32 a large vocabulary's cumulative sum loses its unlikely tokens,
    and float64 is for few.
    """
    rows, vocab = logits.shape
    padded = -(-vocab // BLOCK) * BLOCK
    weights = logits.new_zeros(rows, padded)
    some = weights[:, :vocab]
    torch.sub(logits, logits.amax(1, keepdim=True), out=some)
    some.exp_()
    blocks = weights.view(rows, -1, BLOCK)
    upto = blocks.sum(2).double().cumsum(1)  # [rows, blocks]
    goal = _below(u[:, None] * upto[:, -1:], upto)
    block = torch.searchsorted(upto, goal, right=True).clamp_(max=upto.shape[1] - 1)
    before = torch.where(block > 0, upto.gather(1, (block - 1).clamp(min=0)), 0.0)
    within = blocks[torch.arange(rows, device=u.device), block[:, 0]].double().cumsum(1)
    place = torch.searchsorted(within, _below(goal - before, within), right=True)
    return (block * BLOCK + place)[:, 0].clamp_(max=vocab - 1)


def _below(goal: Tensor, upto: Tensor) -> Tensor:
    """A goal that the sums pass, however they were rounded: what is banned is never drawn."""
    total = upto[:, -1:]
    return torch.minimum(goal, torch.nextafter(total, torch.zeros_like(total)))
