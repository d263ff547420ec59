"""The findings of a comparison: medians over rounds, and medians of the rounds' own ratios."""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.box import MARKDOWN
from rich.table import Table

from tests.bench.load.workloads import Run

SHOWN_ERRORS = 3  # of a server under one load
Names = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Pair:
    """The runs of both servers, A's and B's, under the same load; one each a round."""

    workload: str
    load: int
    runs: tuple[list[Run], list[Run]] = field(default_factory=lambda: ([], []))

    def figures(self) -> list[str]:
        return list(self.runs[0][0].figures)

    def values(self, server: int, figure: str) -> list[float]:
        return [run.figures[figure] for run in self.runs[server]]

    def ratios(self, figure: str) -> list[float]:
        """A over B in each round where there is something to compare."""
        both = zip(self.values(0, figure), self.values(1, figure), strict=True)
        return [a / b for a, b in both if b and not math.isnan(a / b)]


def median(values: Sequence[float]) -> float:
    """Returns the median of the values that are numbers; NaN if none is."""
    numbers = [value for value in values if not math.isnan(value)]
    return statistics.median(numbers) if numbers else math.nan


def table(pairs: Sequence[Pair], names: Names) -> Table:
    found = Table(box=MARKDOWN)
    for heading in ("workload", "load", "figure"):
        found.add_column(heading)
    for heading in (*names, f"{names[0]} / {names[1]}", "least", "greatest"):
        found.add_column(heading, justify="right")
    for pair in pairs:
        for figure in pair.figures():
            found.add_row(pair.workload, str(pair.load), figure, *row(pair, figure))
    return found


def row(pair: Pair, figure: str) -> list[str]:
    medians = [number(median(pair.values(server, figure))) for server in (0, 1)]
    ratios = pair.ratios(figure) or [math.nan]
    spread = (median(ratios), min(ratios), max(ratios))
    return [*medians, *(number(ratio, digits=2) for ratio in spread)]


def number(value: float, digits: int = 1) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.{digits}f}"


def failures(pairs: Sequence[Pair], names: Names) -> Iterator[str]:
    """Yields the errors of each server under each load, the most frequent first."""
    for pair in pairs:
        for name, runs in zip(names, pair.runs, strict=True):
            errors = Counter(error for run in runs for error in run.errors)
            for error, times in errors.most_common(SHOWN_ERRORS):
                yield f"{name}, {pair.workload} {pair.load}: {times} times {error}"
