"""Draws latency over load: a row of panels a workload, a colour a server."""

import importlib
import importlib.util
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from tests.bench.load.results import Names, Pair, median
from tests.bench.load.workloads import ITL, TTFT

PANELS = (("time to first token", TTFT), ("time between tokens", ITL))
STYLES = ("o-", "^--")  # median, 99th percentile


def can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def draw(pairs: Sequence[Pair], names: Names, path: Path) -> None:
    """Raises ModuleNotFoundError without matplotlib."""
    figures = importlib.import_module(
        "matplotlib.figure"
    )  # without pyplot: no display is asked for
    workloads: defaultdict[str, list[Pair]] = defaultdict(list)
    for pair in pairs:
        workloads[pair.workload].append(pair)
    figure = figures.Figure(figsize=(10, 3.6 * len(workloads)), layout="constrained")
    axes = iter(figure.subplots(len(workloads), len(PANELS), squeeze=False).flat)
    for workload, loads in workloads.items():
        for title, kinds in PANELS:
            axis = next(axes)
            for label, style, colour, values in lines(loads, names, kinds):
                points = [str(pair.load) for pair in loads]
                axis.plot(points, values, style, color=colour, label=label)
            axis.set(title=f"{workload}: {title}", xlabel="load", ylabel="ms", yscale="log")
            axis.grid(alpha=0.3)
            axis.legend()
    figure.savefig(path, dpi=150)


def lines(
    loads: Sequence[Pair], names: Names, figures: Sequence[str]
) -> list[tuple[str, str, str, list[float]]]:
    """Label, style, colour and a value for each load."""
    return [
        (
            f"{name} {figure.split()[1]}",
            style,
            f"C{server}",
            [median(pair.values(server, figure)) for pair in loads],
        )
        for server, name in enumerate(names)
        for figure, style in zip(figures, STYLES, strict=True)
    ]
