"""The parts that trainings share: how long one lasts, its rates, its progress, its curve."""

import importlib
import importlib.util
import math
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

WARMUP = 100  # steps
FINAL = 0.02  # of the peak rates
SAVE_EVERY_S = 300.0


@dataclass(frozen=True)
class Length:
    """When the run ends: after so many steps, or after so many seconds, whichever is first."""

    steps: int
    seconds: float

    def share(self, step: int, seconds: float) -> float:
        """How much of the run is over, 0 to 1."""
        return min(1.0, max(step / self.steps, seconds / self.seconds))


def rate_at(share: float, step: int) -> float:
    """Returns the share of the peak rate: a warm-up, then a cosine down to the end of the run."""
    warm = min(1.0, (step + 1) / WARMUP)
    return warm * (FINAL + (1 - FINAL) * 0.5 * (1 + math.cos(math.pi * share)))


def progress_bar(console: Console) -> Progress:
    return Progress(
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%  {task.fields[loss]}  {task.fields[speed]}"),
        TimeRemainingColumn(),
        console=console,
    )


def commit_hash() -> str:
    git = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(git, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def plot(losses: Sequence[float], path: Path) -> None:
    """The curve as a picture, where matplotlib is installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return
    pyplot = importlib.import_module("matplotlib.pyplot")
    figure, axes = pyplot.subplots()
    axes.plot(losses, linewidth=0.5)
    axes.set(xlabel="step", ylabel="loss, nats a token of the assistant", yscale="log")
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
