"""Draws one token a row from logits; the draw is a function of (seed, position) alone.

Each strategy touches only the rows that ask for it, so a batch costs what its rows ask for.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deployments.engine import mirostat
from deployments.engine.bans import BadWordsStrategy, LogitBiasStrategy, MinTokensStrategy
from deployments.engine.dry import DryStrategy
from deployments.engine.logprobs import of_the_draw, of_the_model
from deployments.engine.mirostat import MirostatStrategy
from deployments.engine.penalties import PenaltyStrategy
from deployments.engine.strategy import SamplingRows, SamplingStrategy
from deployments.engine.task import Task
from deployments.engine.temperature import TemperatureStrategy
from deployments.engine.thinking import ThinkingStrategy
from deployments.engine.truncation import (
    MinPStrategy,
    TopKStrategy,
    TopNSigmaStrategy,
    TopPStrategy,
    TypicalStrategy,
    XtcStrategy,
)
from deployments.wire import TokenLogprob

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


@dataclass(frozen=True, slots=True)
class Sample:
    """The token drawn for a row; none when the model's logits were not finite, or when they were
    and `all_banned` says that nothing was left to draw."""

    token_id: int | None
    logprob: TokenLogprob | None = None
    mirostat_mu: float | None = None
    all_banned: bool = False


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

    def apply(self, logits: Tensor, rows: SamplingRows) -> None:
        for strategy in self.strategies:
            strategy.apply(logits, rows)

    def sample(self, logits: Tensor, tasks: Sequence[Task]) -> list[Sample]:
        """One token a task from float32 logits [tasks, vocab], which are overwritten."""
        rows = SamplingRows(tasks, logits.device)
        own = of_the_model(logits, rows)
        finite = logits.amax(1).isfinite()  # before a strategy could hide it
        self.apply(logits, rows)
        drawn, allowed = _draw(logits, rows)
        facts = torch.stack([drawn, finite, allowed]).tolist()
        ids = [id_ if a and b else None for id_, a, b in zip(*facts, strict=True)]
        mirostat.observe(logits, rows, ids)
        logprobs = own.of(ids) | of_the_draw(logits, rows).of(ids)
        return [
            Sample(None, all_banned=bool(facts[1][row]))
            if token_id is None
            else Sample(token_id, logprobs.get(row), tasks[row].mirostat_mu)
            for row, token_id in enumerate(ids)
        ]


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
    greatest, drawn = logits.max(1)
    random = rows.where(lambda p: p.temperature > 0)
    if random:
        # float64: in float32 a large vocabulary's cumulative sum loses its unlikely tokens.
        cumulative = logits[random].softmax(1).double().cumsum(1)
        u = torch.from_numpy(rows.uniform(random)).to(logits.device)
        threshold = u[:, None] * cumulative[:, -1:]
        found = torch.searchsorted(cumulative, threshold, right=True).flatten()
        drawn[random] = found.clamp_(max=logits.shape[1] - 1)
    return drawn, greatest.isfinite()
